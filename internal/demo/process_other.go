//go:build !linux

package demo

import "syscall"

// childAttributes: Ctrl-C at the terminal is for this process alone. A child ends when its standard input does.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
