package controlplane

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/test/controlplane/supervisor"
)

// endTimeout is how long rota-kube may take to stop its servers and clean up before it is killed, after which the
// kernel kills the servers.
const endTimeout = 30 * time.Second

// A child is a running supervisor. It ends when its standard input ends, so also when this process dies.
type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan []byte   // its standard output; closed at the end of it
	done   chan struct{} // closed when it has ended
	err    error         // how; read after done
	stderr *tailWriter

	mu    sync.Mutex
	ended bool // end was called
}

// supervisorName is the name under which this program is the supervisor of a control plane.
const supervisorName = "rota-kube"

// A program that starts control planes is their supervisor, too: it runs itself, under another name.
func init() {
	if os.Args[0] == supervisorName && len(os.Args) > 2 {
		os.Exit(supervisor.Main(os.Args[2:]))
	}
}

// Spawn starts a command whose end may follow that of this program: see supervisor.Spawn.
func Spawn(cmd *exec.Cmd) error { return supervisor.Spawn(cmd) }

func startChild(args, env []string, stderr io.Writer) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{
		cmd:    exec.Command(self, args...), //nolint:noctx // it outlives the context of its start; end stops it
		lines:  make(chan []byte, 1),
		done:   make(chan struct{}),
		stderr: &tailWriter{next: stderr},
	}
	// Ctrl-C at the terminal is for this process; the child follows it.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Args[0] = supervisorName
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := Spawn(c.cmd); err != nil {
		return nil, err
	}
	go c.read(stdout)
	return c, nil
}

func (c *child) read(stdout io.Reader) {
	for scan := bufio.NewScanner(stdout); scan.Scan(); {
		c.lines <- bytes.Clone(scan.Bytes())
	}
	c.err = c.cmd.Wait()
	close(c.done)
	close(c.lines)
}

// ask sends a command and returns the answer. One at a time.
func (c *child) ask(command string) ([]byte, error) {
	if _, err := io.WriteString(c.stdin, command+"\n"); err != nil {
		return nil, errors.Join(errors.New("the control plane is gone"), c.death())
	}
	line, ok := <-c.lines
	if !ok {
		return nil, c.death()
	}
	return line, nil
}

// death waits for the end and returns its reason.
func (c *child) death() error {
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended && c.err == nil {
		return errors.New("the control plane was stopped")
	}
	if c.err == nil {
		return fmt.Errorf("rota-kube ended: %s", c.stderr.tail())
	}
	return fmt.Errorf("rota-kube ended (%w): %s", c.err, c.stderr.tail())
}

// end has rota-kube clean up and waits for it.
func (c *child) end() error {
	select {
	case <-c.done: // it ended by itself
		return c.death()
	default:
	}
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	_ = c.stdin.Close()
	go func() { // an answer that nobody waits for must not block it
		for range c.lines {
		}
	}()
	timer := time.AfterFunc(endTimeout, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	<-c.done
	if c.err != nil {
		return c.death()
	}
	return nil
}

// A tailWriter keeps the end of what is written and passes it on.
type tailWriter struct {
	next io.Writer // may be nil

	mu   sync.Mutex
	kept []byte
}

const tailBytes = 8 << 10

func (t *tailWriter) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	if t.next != nil {
		return t.next.Write(b)
	}
	return len(b), nil
}

func (t *tailWriter) tail() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.kept))
}
