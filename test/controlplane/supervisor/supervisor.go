package supervisor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// stopGrace is how long a server that is stopped on command may take. endGrace is shorter: at the end the data is
// thrown away with the folder.
const (
	stopGrace = 30 * time.Second
	endGrace  = 3 * time.Second
)

// A supervisor runs the servers of a layout: it starts them in order, notices when one dies, carries out commands and
// stops them all. All of it happens in one goroutine, the caller's.
type supervisor struct {
	*layout
	echo io.Writer // takes the servers' output as well; may be nil
	died chan *process
}

func newSupervisor(l *layout, echo io.Writer) *supervisor {
	return &supervisor{layout: l, echo: echo, died: make(chan *process)}
}

// start brings up everything and returns when all of it is ready.
func (s *supervisor) start(ctx context.Context) error {
	stages := [][]*server{{s.etcd}, s.api}
	if s.kcm != nil {
		stages = append(stages, []*server{s.kcm})
	}
	for _, stage := range stages {
		for _, srv := range stage {
			if err := srv.start(s.echo, s.died); err != nil {
				return err
			}
		}
		if err := s.wait(ctx, stage...); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when all of the given servers are ready, or one cannot be, or any server of the control plane has died.
func (s *supervisor) wait(ctx context.Context, servers ...*server) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make(chan error)
	for _, srv := range servers {
		go func() { results <- srv.wait(ctx) }()
	}
	var first error
	for left := len(servers); left > 0; {
		select {
		case p := <-s.died:
			if srv := s.owner(p); srv != nil {
				cancel(srv.death())
			}
		case err := <-results:
			left--
			if err != nil && first == nil {
				first = err
				cancel(err)
			}
		}
	}
	return first
}

// run carries out commands until ctx ends, which is no error, or a server dies.
func (s *supervisor) run(ctx context.Context, commands <-chan string, answer func(any)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-s.died:
			if srv := s.owner(p); srv != nil {
				return srv.death()
			}
		case line := <-commands:
			answer(s.command(ctx, line))
		}
	}
}

// owner returns the server whose current process this is; none where it was stopped or killed on command.
func (s *supervisor) owner(p *process) *server {
	for _, srv := range s.servers() {
		if srv.run == p {
			return srv
		}
	}
	return nil
}

// end stops every server, the last started first.
func (s *supervisor) end() {
	all := s.servers()
	slices.Reverse(all)
	for _, srv := range all {
		srv.stop(endGrace)
	}
}

func (s *supervisor) pids() map[string]int {
	pids := map[string]int{}
	for _, srv := range s.servers() {
		if srv.run != nil {
			pids[srv.name] = srv.run.pid()
		}
	}
	return pids
}

func (s *supervisor) find(name string) (*server, error) {
	var names []string
	for _, srv := range s.servers() {
		if srv.name == name {
			return srv, nil
		}
		names = append(names, srv.name)
	}
	return nil, fmt.Errorf("no server is called %q: there are %q", name, names)
}
