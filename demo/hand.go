package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/dashboard"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
)

// OpenDashboard opens a dashboard of a rota whose buttons are for the replicas given.
type OpenDashboard func(
	ctx context.Context, cfg *rest.Config, namespace, name string, replicas dashboard.Replicas,
) (*dashboard.Server, error)

// mostReplicas is how many replicas there may be at a time. A small machine has enough to do with them.
const mostReplicas = 8

// ByHand leaves the replicas to the buttons of a dashboard, once everything is set up, until Run's ctx ends. Then the
// run is judged, which takes a minute or two more.
func ByHand(open OpenDashboard) Story {
	return func(ctx context.Context, s *Show) error {
		h := &hand{s: s, closed: "the demo is being set up: wait until all Websites are reconciled"}
		page, err := open(ctx, s.Cluster.Config, Namespace, Name, h)
		if err != nil {
			return fmt.Errorf("dashboard: %w", err)
		}
		s.Log("Dashboard: %s", page.URL())
		serving := make(chan error, 1)
		s.Background.Go(func() { serving <- page.Run(ctx) })
		if err := s.SetUp(ctx); err != nil {
			return err
		}
		s.Log("yours: add, stop and kill replicas at %s (Ctrl-C ends and judges the run)", page.URL())
		s.Load.More(rig.CrashRate)
		enough := s.Turn()
		return s.Phase(ctx, rig.Step{Name: "hand", Do: func(ctx context.Context, _ *judge.Phase) error {
			h.close("")
			select {
			case err := <-serving:
				return errors.Join(err, ctx.Err())
			case <-enough:
			}
			h.close("the demo ends: its replicas are being judged")
			s.Log("the replicas come to rest, and are judged then (Ctrl-C again ends at once)")
			return nil
		}})
	}
}

// hand is the buttons of the dashboard.
type hand struct {
	s  *Show
	mu sync.Mutex
	// closed is why the buttons are disabled, or empty if they work.
	closed string
}

var _ dashboard.Replicas = (*hand)(nil)

// close closes the buttons for a reason, or opens them with "". When it returns, no button is at work.
func (h *hand) close(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = reason
}

// Add starts a replica.
func (h *hand) Add(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != "" {
		return "", errors.New(h.closed)
	}
	if n := len(h.s.Fleet.Live()); n >= mostReplicas {
		return "", fmt.Errorf("there are %d replicas, which is as many as the demo runs: stop one first", n)
	}
	p, err := h.s.Fleet.Start(ctx, nil, nil)
	if err != nil {
		return "", err
	}
	h.s.Log("added by hand: %s", p.Pod)
	return p.Pod, nil
}

// Stop has a replica leave.
func (h *hand) Stop(_ context.Context, pod string) error {
	return h.end(pod, func(p *rig.Replica) error {
		h.s.Log("stopped by hand (SIGTERM): %s", pod)
		return p.Leave()
	})
}

// Kill ends a replica at once.
func (h *hand) Kill(_ context.Context, pod string) error {
	return h.end(pod, func(p *rig.Replica) error {
		h.s.Log("killed by hand (SIGKILL): %s", pod)
		return h.s.Kill(p, "kill of "+pod)
	})
}

func (h *hand) end(pod string, do func(*rig.Replica) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != "" {
		return errors.New(h.closed)
	}
	var chosen *rig.Replica
	others := 0 // that can take its slots
	for _, p := range h.s.Fleet.Live() {
		switch {
		case p.Pod == pod:
			chosen = p
		case h.s.Absent(p.Pod) == "":
			others++
		}
	}
	switch {
	case chosen == nil:
		return fmt.Errorf("no replica %q runs, or it was told to end already", pod)
	case others == 0:
		return fmt.Errorf("%s is the last replica that has joined: add another one first, and wait until it is in the table",
			pod)
	}
	return do(chosen)
}
