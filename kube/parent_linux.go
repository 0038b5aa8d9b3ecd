package main

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const selfExe = "/proc/self/exe" // still works when the binary was replaced

// The kernel ties "tell me when my parent is gone" to the thread that asked. Only the main thread is sure to live as
// long as the process.
func init() { runtime.LockOSThread() }

// dieWithParent asks for SIGTERM when the process that started this one ends, however it ends. orphaned then says that
// it has. Call it from the main goroutine.
func dieWithParent() (orphaned func() bool, err error) {
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
