// Package process runs replicas as processes of their own and knows which of their ends were wanted.
package process

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/controlplane"
	"github.com/rota-dev/rota/internal/journal"
)

// Options say what to start.
type Options struct {
	// Name is for messages.
	Name string
	// Command is a program and its arguments. It must end when its standard input does.
	Command []string
	// Env, as name=value, is added to this process's environment.
	Env []string
	// Log is the path of a file, which is appended to, for what it prints.
	Log string
	// Line, if set, gets each line of its standard output, from one goroutine, instead of the log.
	Line func(string)
}

// A Process runs, or has ended. Its methods may be called concurrently.
type Process struct {
	name, log string
	cmd       *exec.Cmd
	stdin     io.WriteCloser
	done      chan struct{}

	mu       sync.Mutex
	expected bool
	ended    time.Duration
	err      error
}

// Start starts a process. It is gone after Kill, and with this process.
func Start(o Options) (*Process, error) {
	p := &Process{name: o.Name, log: o.Log, done: make(chan struct{})}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()                   // the process has its own
	p.cmd = exec.Command(o.Command[0], o.Command[1:]...) //nolint:noctx // it ends by a signal, or by Kill
	p.cmd.Env = append(os.Environ(), o.Env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = Attributes()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	var stdout io.Reader
	if o.Line != nil {
		p.cmd.Stdout = nil
		if stdout, err = p.cmd.StdoutPipe(); err != nil {
			return nil, err
		}
	}
	if err := controlplane.Spawn(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	go p.wait(stdout, o.Line)
	return p, nil
}

func (p *Process) wait(stdout io.Reader, line func(string)) {
	if stdout != nil {
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			line(scan.Text())
		}
	}
	err := p.cmd.Wait()
	p.mu.Lock()
	p.ended, p.err = journal.Now(), err
	p.mu.Unlock()
	close(p.done)
}

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended returns when it ended, by journal.Now; false while it runs.
func (p *Process) Ended() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended, p.ended != 0
}

// Say writes a line to its standard input.
func (p *Process) Say(line string) error {
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		return fmt.Errorf("tell %s %q: %w", p.name, line, err)
	}
	return nil
}

// Signal sends a signal after which it goes on: SIGSTOP or SIGCONT.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// End sends a signal that is meant to end it.
func (p *Process) End(s syscall.Signal) error {
	p.mu.Lock()
	p.expected = true
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	return nil
}

// Running says whether it runs and nobody has told it to end.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended == 0 && !p.expected
}

// Lingers says that it has not ended, "" when it has.
func (p *Process) Lingers() string {
	select {
	case <-p.done:
		return ""
	default:
		return p.name + " has not ended"
	}
}

// Trouble returns an error if it ended and was not meant to, or ended with an error after a signal other than SIGKILL.
func (p *Process) Trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == 0 || p.err == nil && p.expected {
		return nil
	}
	if state, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && p.expected && state.Signaled() && state.Signal() == syscall.SIGKILL {
		return nil
	}
	return fmt.Errorf("%s ended (%v):\n%s", p.name, p.cmd.ProcessState, p.Tail())
}

// Tail returns the end of its log.
func (p *Process) Tail() []byte {
	text, _ := os.ReadFile(p.log)
	text = text[max(0, len(text)-4000):]
	return bytes.TrimSpace(text)
}

// Kill ends it at once and waits for it.
func (p *Process) Kill() {
	p.mu.Lock()
	p.expected = true
	p.mu.Unlock()
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.stdin.Close()
}
