//go:build !linux

package footprint

import "syscall"

// childAttributes: Ctrl-C at the terminal is for this process alone.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
