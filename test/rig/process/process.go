// Package process runs replicas as processes of their own and knows which of their ends were wanted.
package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/rig/journal"
)

// Options say what to start.
type Options struct {
	// Name is for messages.
	Name string
	// Command is a program and its arguments. It must end when its standard input does.
	Command []string
	// Config is encoded into the environment variable Variable, for Main.
	Config   any
	Variable string
	// Env, as name=value, is added to this process's environment, too.
	Env []string
	// Log is the path of a file, which is appended to, for what it prints.
	Log string
	// Line, if set, gets each line of its standard output, from one goroutine, instead of the log.
	Line func(string)
	// Answers says that it calls Answer. Its standard output is for Ask then.
	Answers bool
}

const (
	// answersKept is how many lines wait for Ask. Later ones are dropped.
	answersKept = 16
	// longestLine bounds a line of standard output.
	longestLine = 16 << 20
)

// A Process runs, or has ended. Its methods may be called concurrently.
type Process struct {
	name, log string
	cmd       *exec.Cmd
	stdin     io.WriteCloser
	done      chan struct{}
	answers   chan string
	asking    sync.Mutex

	mu       sync.Mutex
	expected bool
	ended    time.Duration
	err      error
}

// Start starts a process. It is gone after Kill, and with this process.
func Start(o Options) (*Process, error) {
	p := &Process{name: o.Name, log: o.Log, done: make(chan struct{}), answers: make(chan string, answersKept)}
	config, err := json.Marshal(o.Config)
	if err != nil {
		return nil, err
	}
	if o.Answers {
		o.Line = p.answered
	}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()                   // the process has its own
	p.cmd = exec.Command(o.Command[0], o.Command[1:]...) //nolint:noctx // it ends by a signal, or by Kill
	p.cmd.Env = append(append(os.Environ(), o.Variable+"="+string(config)), o.Env...)
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
		scan := bufio.NewScanner(stdout)
		for scan.Buffer(nil, longestLine); scan.Scan(); {
			line(scan.Text())
		}
	}
	err := p.cmd.Wait()
	p.mu.Lock()
	p.ended, p.err = journal.Now(), err
	p.mu.Unlock()
	close(p.done)
}

// PID returns its id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

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

func (p *Process) answered(line string) {
	select {
	case p.answers <- line:
	default:
	}
}

// Ask says a line to a process that answers, and returns the rest of the first line of its standard output that begins
// with the word.
func (p *Process) Ask(ctx context.Context, line, word string) (string, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	if err := p.Say(line); err != nil {
		return "", errors.Join(err, p.Failure())
	}
	for {
		select {
		case answer := <-p.answers:
			if first, rest, _ := strings.Cut(answer, " "); first == word {
				return rest, nil
			}
		case <-p.done:
			return "", errors.Join(fmt.Errorf("tell %s %q: it has ended", p.name, line), p.Failure())
		case <-ctx.Done():
			return "", fmt.Errorf("tell %s %q: no answer: %w", p.name, line, context.Cause(ctx))
		}
	}
}

// Signal sends a signal after which it goes on: SIGSTOP or SIGCONT.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// End sends a signal that is meant to end it. It returns an *EndError if it has ended by itself before.
func (p *Process) End(s syscall.Signal) error {
	p.mu.Lock()
	over := p.ended != 0 && !p.expected
	if !over {
		p.expected = true
	}
	p.mu.Unlock()
	if over {
		return p.Failure()
	}
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

// EndError says that a process ended and nobody had told it to, or that it failed when it was told.
type EndError struct {
	// Name is the process's.
	Name string
	// State is how it ended.
	State *os.ProcessState
	// Tail is the end of its log, of many lines.
	Tail []byte
}

// How says in one line what happened, without the log.
func (e *EndError) How() string { return fmt.Sprintf("%s ended (%v)", e.Name, e.State) }

func (e *EndError) Error() string { return fmt.Sprintf("%s:\n%s", e.How(), e.Tail) }

// Tell logs how a process ended, and the end of its log line by line: but not of one that was killed, whose log cannot
// know why. Of another error it logs what it says.
func Tell(err error, log func(format string, args ...any)) {
	var end *EndError
	if !errors.As(err, &end) {
		log("%v", err)
		return
	}
	if end.Killed() {
		log("%s", end.How())
		return
	}
	log("%s. The end of its log:", end.How())
	for line := range strings.Lines(string(end.Tail)) {
		log("  | %s", strings.TrimRight(line, "\n"))
	}
}

// Killed says whether it ended by SIGKILL.
func (e *EndError) Killed() bool {
	state, ok := e.State.Sys().(syscall.WaitStatus)
	return ok && state.Signaled() && state.Signal() == syscall.SIGKILL
}

// Failure returns an *EndError if the process ended and nobody had told it to, or if it ended with an error after a
// signal other than SIGKILL.
func (p *Process) Failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == 0 || p.err == nil && p.expected {
		return nil
	}
	e := &EndError{Name: p.name, State: p.cmd.ProcessState, Tail: p.Tail()}
	if p.expected && e.Killed() {
		return nil
	}
	return e
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
