// Package python embeds the client of dispatchers in Python.
package python

import _ "embed" // the module

// Client is rota_dispatch.py.
//
//go:embed rota_dispatch.py
var Client []byte
