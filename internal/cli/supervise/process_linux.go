package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of orphans among its descendants, so that it can wait for them.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// passSignals has the signals that the command should get sent to c.
func passSignals(c chan<- os.Signal) {
	signal.Notify(c, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
}

// process is a running command with its process group.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the whole group has exited
	code int           // set before done is closed
}

// start starts a command in a process group of its own. It is killed if this process dies.
func start(l line, out, errOut *os.File) (*process, error) {
	cmd := exec.CommandContext(context.Background(), l.args[0], l.args[1:]...)
	cmd.Env = append(os.Environ(), l.env...)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.wait(started)
	return p, <-started
}

// wait starts the command and waits until its whole group has exited. It stays on one thread, because the kernel kills
// the command when the thread that started it ends.
func (p *process) wait(started chan<- error) {
	runtime.LockOSThread() // the thread ends with this goroutine
	if err := p.cmd.Start(); err != nil {
		started <- err
		close(p.done)
		return
	}
	started <- nil
	err := p.cmd.Wait()
	p.code = exitCode(p.cmd.ProcessState, err)
	for {
		if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
			break
		}
		_, _ = syscall.Wait4(-p.cmd.Process.Pid, nil, syscall.WNOHANG, nil) // descendants that were adopted
		time.Sleep(5 * time.Millisecond)
	}
	close(p.done)
}

// signal sends a signal to the whole group.
func (p *process) signal(s syscall.Signal) {
	if p.cmd.Process != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

// exitCode is the exit code as a shell shows it.
func exitCode(state *os.ProcessState, err error) int {
	if state == nil {
		return 1
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	if code := state.ExitCode(); code >= 0 {
		return code
	}
	if err != nil {
		return 1
	}
	return 0
}
