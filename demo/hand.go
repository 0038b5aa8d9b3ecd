package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/cli/dashboard"
	"github.com/rota-dev/rota/test/journal"
	"github.com/rota-dev/rota/test/judge"
)

// OpenDashboard opens a dashboard of a rota whose buttons are for the replicas given.
type OpenDashboard func(
	ctx context.Context, cfg *rest.Config, namespace, name string, replicas dashboard.Replicas,
) (*dashboard.Server, error)

// mostReplicas is how many replicas there may be at a time. A small machine has enough to do with them.
const mostReplicas = 8

// hand is the audience's hand: the buttons of the dashboard.
type hand struct {
	e  *engine
	mu sync.Mutex
	// closed says why the buttons do nothing; "": they work.
	closed string
}

var _ dashboard.Replicas = (*hand)(nil)

func newHand(e *engine) *hand {
	return &hand{e: e, closed: "the demo is being set up: wait until all Websites are reconciled"}
}

// say opens the buttons with "", or closes them with a reason. When it returns, no button is at work.
func (h *hand) say(closed string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = closed
}

// open says whether the buttons work.
func (h *hand) open() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed == ""
}

// Add starts a replica.
func (h *hand) Add(context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != "" {
		return "", errors.New(h.closed)
	}
	if n := len(h.e.live()); n >= mostReplicas {
		return "", fmt.Errorf("there are %d replicas, which is as many as the demo runs: stop one first", n)
	}
	p, err := h.e.start()
	if err != nil {
		return "", err
	}
	h.e.view.log("added by hand: %s", p.pod)
	return p.pod, nil
}

// Stop has a replica leave.
func (h *hand) Stop(_ context.Context, pod string) error {
	return h.end(pod, func(p *replica) error {
		h.e.view.log("stopped by hand (SIGTERM): %s", pod)
		return p.End(syscall.SIGTERM)
	})
}

// Kill ends a replica at once.
func (h *hand) Kill(_ context.Context, pod string) error {
	return h.end(pod, func(p *replica) error {
		h.e.view.log("killed by hand (SIGKILL): %s", pod)
		run := &phaseRun{name: "kill of " + pod}
		if err := h.e.kill(p, run); err != nil {
			return err
		}
		h.e.mu.Lock()
		defer h.e.mu.Unlock()
		h.e.kills = append(h.e.kills, run)
		return nil
	})
}

func (h *hand) end(pod string, do func(*replica) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed != "" {
		return errors.New(h.closed)
	}
	var chosen *replica
	others := 0 // that can take its slots
	for _, p := range h.e.live() {
		switch {
		case p.pod == pod:
			chosen = p
		case h.e.absent(p.pod) == "":
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

// open opens the dashboard.
func (e *engine) open(ctx context.Context) (err error) {
	e.hand = newHand(e)
	if e.page, err = e.o.Dashboard(ctx, e.cluster.Config, rotaNamespace, rotaName, e.hand); err != nil {
		return fmt.Errorf("dashboard: %w", err)
	}
	e.view.log("Dashboard: %s", e.page.URL())
	return nil
}

// byHand is what happens with a dashboard, instead of the rest of the story.
func (e *engine) byHand(ctx context.Context) error {
	e.view.title("yours: add, stop and kill replicas at " + e.page.URL() + " (Ctrl-C ends and judges the run)")
	e.aimed(crashRate)
	enough := e.turn()
	return e.phase(ctx, "hand", func(ctx context.Context, _ *phaseRun) error {
		e.hand.say("")
		select {
		case <-ctx.Done():
		case <-enough:
		}
		e.hand.say("the demo ends: its replicas are being judged")
		e.view.title("the replicas come to rest, and are judged then (Ctrl-C again ends at once)")
		return ctx.Err()
	})
}

// tellKills says how soon the slots of replicas that were killed by hand were worked on again. There is no bound to
// judge it by: another replica may have been killed meanwhile.
func (e *engine) tellKills(moves []judge.Move, all []journal.Reconcile) {
	for _, k := range e.kills {
		if k.victimsSlots.Empty() {
			continue
		}
		took := judge.TakenOver(moves, k.victimsSlots, k.killed, e.worked(k, all))
		e.view.log("%s: its %d slots were worked on again after %.1f s", k.name, k.victimsSlots.Len(), took.Seconds())
	}
}
