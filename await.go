package rota

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/member"
)

// startPatience is when people are told what a member waits for before it joins, and how often it is logged again.
const startPatience = 10 * time.Second

// startEvents is the time between two events about that: API servers keep them for an hour.
const startEvents = 30 * time.Minute

// start is an informer that must run before the member joins.
type start struct {
	kind    schema.GroupKind
	started <-chan struct{}
	client  bool // it reads through a client that ShareInformer was given
}

// prerequisite is something without which a member does not join: it would take slots, and nobody would work on them.
type prerequisite struct {
	done <-chan struct{}
	what func() string
}

func (r *Rota) prerequisites() []prerequisite {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []prerequisite
	for _, s := range r.started {
		out = append(out, prerequisite{s.started, func() string { return fmt.Sprintf("the informer of %s, which was not started", s.kind) }})
	}
	for _, c := range r.controllers {
		out = append(out, prerequisite{c.begun, c.missing})
	}
	return out
}

// missing returns what people are told while Started was not called.
func (c *Controller) missing() string {
	c.mu.Lock()
	explain := c.explain
	c.mu.Unlock()
	if explain != nil {
		if why := explain(); why != "" {
			return fmt.Sprintf("the workers of controller %s: %s", c.name, why)
		}
	}
	return fmt.Sprintf("the workers of controller %s, which have not asked its queue for work: they must Get from the Queue that NewQueue returned", c.name)
}

// Started notes that the controller's workers run: the member joins once those of all controllers do, so that it takes
// no slots that nobody would work on. Queue.Get calls it. Call it where workers have another queue, or where they start
// only after the member has joined. It may be called more than once.
func (c *Controller) Started() { c.begin.Do(func() { close(c.begun) }) }

// Begun is closed when Started was called.
func (c *Controller) Begun() <-chan struct{} { return c.begun }

// Explain sets what tells people why the workers do not run yet, "" where it does not know. It is called concurrently
// and must not block.
func (c *Controller) Explain(why func() string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.explain = why
}

// waitsFor returns what the member waits for before it joins.
func (r *Rota) waitsFor() []string {
	var out []string
	for _, p := range r.prerequisites() {
		select {
		case <-p.done:
		default:
			out = append(out, p.what())
		}
	}
	return append(out, r.unlike.texts()...)
}

// Ready is a readiness check: it is nil once the member has joined, with or without slots, and otherwise says what it
// waits for. It is an error, too, for a minute after it showed that a controller is wired wrongly. ctrlrt adds it to
// the manager. The request is not looked at.
func (r *Rota) Ready(*http.Request) error {
	if r.hasJoined() {
		return r.faults.err(r.now())
	}
	if waits := r.waitsFor(); len(waits) > 0 {
		return fmt.Errorf("rota %s: not joined yet, waiting for %s", r.Name(), strings.Join(waits, "; "))
	}
	return fmt.Errorf("rota %s: not joined yet", r.Name())
}

// awaitStart waits until informers and workers run: slots that opened before would look empty, and what is in them
// deleted, or nobody would work on them. It returns false when ctx ends, and an error where the wiring can never work.
func (r *Rota) awaitStart(ctx context.Context) (bool, error) {
	late := time.NewTicker(startPatience)
	defer late.Stop()
	tell := 0 // how often it is logged before the next event
	for _, p := range r.prerequisites() {
		for waiting := true; waiting; {
			select {
			case <-p.done:
				waiting = false
			case <-late.C:
				message := "This member takes no slots yet. It waits for " + strings.Join(r.waitsFor(), "; ")
				if tell > 0 {
					tell--
					r.log.Info(message)
					continue
				}
				tell = int(startEvents / startPatience)
				r.tell(ctx, member.Notify{Reason: "NotJoining", Warning: true, Message: message})
			case <-ctx.Done():
				return false, nil
			}
		}
	}
	return r.awaitWiring(ctx)
}
