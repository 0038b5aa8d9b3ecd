package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of orphans among its descendants, so that it can wait for them.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// monotonic returns the time on CLOCK_MONOTONIC, which is the same in all processes.
func monotonic() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}

// passSignals has the signals that the command should get sent to c.
func passSignals(c chan<- os.Signal) {
	signal.Notify(c, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
}

// process is a command with its process group.
type process struct {
	cmd                 *exec.Cmd
	hasExited, groupHas chan struct{}
	exitCode            int // set before hasExited is closed

	mu      sync.Mutex
	started bool
	last    syscall.Signal // sent before the command was started
}

// exitNotStarted is the exit code of a command that cannot be started, as a shell has it.
const exitNotStarted = 127

// start starts a command in a new process group. It is killed if this process dies. start does not wait for
// that: the file system may be slow.
func start(l line, out, errOut *os.File) program {
	cmd := exec.CommandContext(context.Background(), l.args[0], l.args[1:]...)
	cmd.Env = append(os.Environ(), l.env...)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, hasExited: make(chan struct{}), groupHas: make(chan struct{})}
	go p.run()
	return p
}

// run starts the command and waits until its whole group has exited. It stays on one thread, because the kernel kills
// the command when the thread that started it ends.
func (p *process) run() {
	runtime.LockOSThread() // the thread ends with this goroutine
	defer close(p.groupHas)
	if err := p.begin(); err != nil {
		_, _ = p.cmd.Stderr.Write([]byte("rota run: " + err.Error() + "\n"))
		p.exitCode = exitNotStarted
		close(p.hasExited)
		return
	}
	err := p.cmd.Wait()
	p.exitCode = exitCode(p.cmd.ProcessState, err)
	close(p.hasExited)
	for !errors.Is(syscall.Kill(-p.cmd.Process.Pid, 0), syscall.ESRCH) {
		_, _ = syscall.Wait4(-p.cmd.Process.Pid, nil, syscall.WNOHANG, nil) // descendants that were adopted
		time.Sleep(5 * time.Millisecond)
	}
}

func (p *process) begin() error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = true
	if p.last != 0 {
		_ = syscall.Kill(-p.cmd.Process.Pid, p.last)
	}
	return nil
}

// signal implements program.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if closed(p.groupHas) {
		return // the group's number may be another's
	}
	if !p.started {
		p.last = s
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, s)
}

// pid implements program.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		return 0
	}
	return p.cmd.Process.Pid
}

// exited implements program.
func (p *process) exited() <-chan struct{} { return p.hasExited }

// done implements program.
func (p *process) done() <-chan struct{} { return p.groupHas }

// code implements program.
func (p *process) code() int { return p.exitCode }

// reapOrphans waits for adopted processes that have exited, except for those in keep.
func reapOrphans(keep []program) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			group, _ := syscall.Getpgid(pid)
			if err == nil && pid != group && slices.ContainsFunc(keep, func(p program) bool { return p.pid() == group }) {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
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
