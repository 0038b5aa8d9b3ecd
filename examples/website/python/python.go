// Package python embeds the reconciler of Websites in Python.
package python

import _ "embed" // the program

// Website is website.py.
//
//go:embed website.py
var Website []byte
