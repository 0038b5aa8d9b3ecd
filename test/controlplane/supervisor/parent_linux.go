package supervisor

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent asks for SIGTERM when the process that started this one ends, however it ends; orphaned then reports
// true. The kernel ties that to the thread that asked, and only the main thread is sure to live as long as the process.
// So call it from the main goroutine, before anything else has run on it.
func dieWithParent() (orphaned func() bool, err error) {
	runtime.LockOSThread()
	parent := os.Getppid()
	orphaned = func() bool { return os.Getppid() != parent }
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		return nil, err
	}
	if orphaned() {
		return nil, errors.New("the process that started this one has ended")
	}
	return orphaned, nil
}

// childAttr: a group of its own, so that Ctrl-C at a terminal reaches only the supervisor, which then stops its
// children in order; and SIGKILL from the kernel when the supervisor dies without doing so.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
