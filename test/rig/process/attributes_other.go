//go:build !linux

package process

import "syscall"

// Attributes are those of a child: Ctrl-C at the terminal is for this process alone. A child ends when its standard
// input does.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
