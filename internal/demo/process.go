package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/controlplane"
	"github.com/rota-dev/rota/internal/demo/journal"
)

// process is a replica. Its fields do not change after start, but for those below done.
type process struct {
	pod, build string
	cmd        *exec.Cmd
	stdin      io.Closer
	logPath    string
	// trafficPath is where recordTraffic writes.
	trafficPath string
	done        chan struct{} // closed when it has ended

	reading sync.Mutex
	journal *journal.Reader

	mu       sync.Mutex
	expected bool          // its end is wanted
	ended    time.Duration // by journal.Now; 0 while it runs
	err      error
}

func startProcess(command []string, dir, pod string, c operatorConfig) (*process, error) {
	c.Journal, c.Traffic = filepath.Join(dir, pod+".journal"), filepath.Join(dir, pod+".traffic")
	env, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	p := &process{
		pod: pod, build: c.Build, logPath: filepath.Join(dir, pod+".log"), journal: journal.NewReader(c.Journal, pod),
		trafficPath: c.Traffic, done: make(chan struct{}),
	}
	log, err := os.Create(p.logPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()               // the process has its own
	p.cmd = exec.Command(command[0], command[1:]...) //nolint:noctx // a replica ends by a signal, or by kill
	p.cmd.Env = append(os.Environ(), EnvOperator+"="+string(env), "POD_NAME="+pod, "POD_UID=", "CONTAINER_NAME=", "POD_NAMESPACE="+rotaNamespace)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = childAttributes()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := controlplane.Spawn(p.cmd); err != nil {
		return nil, fmt.Errorf("start replica %s: %w", pod, err)
	}
	go p.wait()
	return p, nil
}

func (p *process) wait() {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.ended, p.err = journal.Now(), err
	p.mu.Unlock()
	close(p.done)
}

// signal sends a signal that is meant to end the process.
func (p *process) signal(s syscall.Signal) error {
	p.mu.Lock()
	p.expected = true
	p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("end replica %s: %w", p.pod, err)
	}
	return nil
}

// running says whether the process runs and nobody has told it to end.
func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended == 0 && !p.expected
}

// lingers says that the process has not ended, "" when it has.
func (p *process) lingers() string {
	select {
	case <-p.done:
		return ""
	default:
		return p.pod + " has not ended"
	}
}

// trouble returns an error if the process ended and was not meant to, or ended with an error after SIGTERM.
func (p *process) trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == 0 || p.err == nil && p.expected {
		return nil
	}
	if state, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && p.expected && state.Signaled() && state.Signal() == syscall.SIGKILL {
		return nil
	}
	return fmt.Errorf("replica %s ended (%v):\n%s", p.pod, p.cmd.ProcessState, p.tail())
}

func (p *process) tail() []byte {
	text, _ := os.ReadFile(p.logPath)
	text = text[max(0, len(text)-4000):]
	return bytes.TrimSpace(text)
}

// kill ends the process at once and waits for it.
func (p *process) kill() {
	p.mu.Lock()
	p.expected = true
	p.mu.Unlock()
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.stdin.Close()
}

// reconciles returns those in the journal so far.
func (p *process) reconciles() ([]journal.Reconcile, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	list, err := p.journal.Read()
	return slices.Clone(list), err
}

// count returns the number of reconciles so far.
func (p *process) count() (int, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	list, err := p.journal.Read()
	return len(list), err
}
