package process

import "syscall"

// Attributes are those of a child: it dies with this process, and Ctrl-C at the terminal is for this process alone.
func Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
