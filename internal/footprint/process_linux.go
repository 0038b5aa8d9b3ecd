package footprint

import "syscall"

// childAttributes: a child dies with this process, and Ctrl-C at the terminal is for this process alone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
