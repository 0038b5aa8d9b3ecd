package supervisor

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	readyTimeout = 90 * time.Second
	probeEvery   = 50 * time.Millisecond
	tailLines    = 20
)

// A server is one of the processes that make the control plane. It can be stopped and started again, with the same
// ports and data. It is used by one goroutine, the supervisor's.
type server struct {
	name    string
	program string // its path
	args    []string
	log     string // the file that takes its output
	ready   probe

	run *process // nil while it is stopped
}

// start runs the server and tells died when it ends on its own.
func (s *server) start(echo io.Writer, died chan<- *process) error {
	if s.run != nil {
		return fmt.Errorf("%s runs already", s.name)
	}
	p, err := startProcess(s.program, s.args, s.log, prefixed(echo, s.name))
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.run = p
	go func() {
		<-p.done
		died <- p
	}()
	return nil
}

// wait returns when the server is ready, takes too long, or ctx ends, then with the cause of that.
func (s *server) wait(ctx context.Context) error {
	deadline := time.NewTimer(readyTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("%s is not ready after %s: %w; last lines of its log:\n%s",
				s.name, readyTimeout, err, tail(s.log, tailLines))
		case <-tick.C:
		}
	}
}

func (s *server) death() error {
	return fmt.Errorf("%s died (%s); last lines of its log:\n%s", s.name, s.run.cmd.ProcessState, tail(s.log, tailLines))
}

// stop ends the server and waits for it. Stopping a stopped one does nothing.
func (s *server) stop(grace time.Duration) {
	if p := s.run; p != nil {
		s.run = nil
		p.stop(grace)
	}
}

// kill ends the server with SIGKILL.
func (s *server) kill() {
	if p := s.run; p != nil {
		s.run = nil
		p.kill()
	}
}

// echoMu keeps lines of different servers apart.
var echoMu sync.Mutex

type prefixWriter struct {
	w      io.Writer
	prefix string
	line   []byte // begun, not ended
}

// prefixed returns a writer that puts the name before each line, or nil.
func prefixed(w io.Writer, name string) io.Writer {
	if w == nil {
		return nil
	}
	return &prefixWriter{w: w, prefix: name + ": "}
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	for _, c := range b {
		p.line = append(p.line, c)
		if c == '\n' {
			echoMu.Lock()
			_, _ = io.WriteString(p.w, p.prefix+string(p.line))
			echoMu.Unlock()
			p.line = p.line[:0]
		}
	}
	return len(b), nil
}
