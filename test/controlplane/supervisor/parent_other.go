//go:build !linux

package supervisor

import "syscall"

// dieWithParent does nothing where the kernel offers no such signal: there a control plane ends with its supervisor's
// standard input (--json) or a signal.
func dieWithParent() (orphaned func() bool, err error) { return func() bool { return false }, nil }

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
