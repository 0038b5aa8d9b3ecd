package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A reply answers one command line: {"ok":true,"pid":1} or {"error":"..."}.
type reply struct {
	OK    bool   `json:"ok,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// command carries out one line:
//
//	stop NAME    SIGTERM, then SIGKILL after a while; returns when it has ended
//	kill NAME    SIGKILL
//	start NAME   with the ports and data that it had; returns when it is ready
//
// The pid is that of the process stopped, killed or started.
func (s *supervisor) command(ctx context.Context, line string) reply {
	pid, err := s.do(ctx, strings.Fields(line))
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{OK: true, PID: pid}
}

func (s *supervisor) do(ctx context.Context, words []string) (int, error) {
	if len(words) != 2 {
		return 0, errors.New("a command is `stop NAME`, `kill NAME` or `start NAME`")
	}
	srv, err := s.find(words[1])
	if err != nil {
		return 0, err
	}
	if words[0] == "start" {
		return s.restart(ctx, srv)
	}
	p := srv.run
	if p == nil {
		return 0, fmt.Errorf("%s is stopped", srv.name)
	}
	switch words[0] {
	case "stop":
		srv.stop(stopGrace)
	case "kill":
		srv.kill()
	default:
		return 0, fmt.Errorf("no such command: %s: there are stop, kill and start", words[0])
	}
	return p.pid(), nil
}

// restart starts a server that was stopped. If it does not become ready it is stopped again, so that the caller can do
// something about it and retry.
func (s *supervisor) restart(ctx context.Context, srv *server) (int, error) {
	if err := srv.start(s.echo, s.died); err != nil {
		return 0, err
	}
	if err := s.wait(ctx, srv); err != nil {
		srv.stop(endGrace)
		return 0, err
	}
	return srv.run.pid(), nil
}

// readCommands sends the lines of r and calls eof at its end.
func readCommands(r io.Reader, eof func()) <-chan string {
	lines := make(chan string)
	go func() {
		defer eof()
		for scan := bufio.NewScanner(r); scan.Scan(); {
			if line := strings.TrimSpace(scan.Text()); line != "" {
				lines <- line
			}
		}
	}()
	return lines
}
