package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
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

// process is a command with its process group.
type process struct {
	cmd *exec.Cmd
	// exited is closed when the command has exited, and done when its whole group has. code is set before.
	exited, done chan struct{}
	code         int

	mu      sync.Mutex
	started bool
	last    syscall.Signal // sent before the command was started
}

// exitNotStarted is the exit code of a command that cannot be started, as a shell has it.
const exitNotStarted = 127

// start starts a command in a new process group. It is killed if this process dies. start does not wait for
// that: the file system may be slow.
func start(l line, out, errOut *os.File) *process {
	cmd := exec.CommandContext(context.Background(), l.args[0], l.args[1:]...)
	cmd.Env = append(os.Environ(), l.env...)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, exited: make(chan struct{}), done: make(chan struct{})}
	go p.run()
	return p
}

// run starts the command and waits until its whole group has exited. It stays on one thread, because the kernel kills
// the command when the thread that started it ends.
func (p *process) run() {
	runtime.LockOSThread() // the thread ends with this goroutine
	defer close(p.done)
	if err := p.begin(); err != nil {
		_, _ = p.cmd.Stderr.Write([]byte("rota run: " + err.Error() + "\n"))
		p.code = exitNotStarted
		close(p.exited)
		return
	}
	err := p.cmd.Wait()
	p.code = exitCode(p.cmd.ProcessState, err)
	close(p.exited)
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

// signal sends a signal to the whole group.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done: // the group's number may be another's
		return
	default:
	}
	if !p.started {
		p.last = s
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, s)
}

// reapOrphans waits for adopted processes that have exited, except for those in keep.
func reapOrphans(keep []*process) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(field)
			if group, _ := syscall.Getpgid(pid); err == nil && pid != group && groupIn(keep, group) {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
	}
}

// groupIn reports whether a process group is one of the processes'.
func groupIn(all []*process, group int) bool {
	for _, p := range all {
		p.mu.Lock()
		is := p.started && p.cmd.Process.Pid == group
		p.mu.Unlock()
		if is {
			return true
		}
	}
	return false
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
