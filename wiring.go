package rota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// startPeriod is the time between two checks for running informers.
	startPeriod = 20 * time.Millisecond
	// faultPeriod is the time between two log lines about a fault that recurs, and how long after its last occurrence
	// Ready forgets it.
	faultPeriod = time.Minute
)

// wiring is what a controller's calls have shown of its wiring.
type wiring struct {
	late                           atomic.Bool // ExpectKindLate was called
	given, added, admitted, forgot atomic.Bool
}

// ExpectKindLate lets Run join although no informer of the controller's kind was made yet: the adapter waits for the
// kind to be installed, and makes one then. Call it before Run.
func (c *Controller) ExpectKindLate() { c.wiring.late.Store(true) }

// awaitWiring waits until an informer of the kind of each controller made by NewController runs. It returns false when
// ctx ends. It returns an error after startPatience; or at once if no client was wrapped, or nobody works on a shared
// kind.
func (r *Rota) awaitWiring(ctx context.Context) (bool, error) {
	late := time.NewTimer(startPatience)
	defer late.Stop()
	tick := time.NewTicker(startPeriod)
	defer tick.Stop()
	for {
		err := r.checkInformers()
		if err == nil {
			return true, errors.Join(r.checkClients(), r.checkUnworked())
		}
		select {
		case <-tick.C:
		case <-late.C:
			return false, err
		case <-ctx.Done():
			return false, nil
		}
	}
}

// checkInformers returns an error for controllers without a running informer that holds this member's share of their
// kind.
func (r *Rota) checkInformers() error {
	var errs []error
	for _, c := range r.registered() {
		made, runs := r.share.Informers(c.kind)
		switch {
		case runs || c.wiring.late.Load():
		case made:
			errs = append(errs, fmt.Errorf("controller %s: the informer of %s with this member's share was not started", c.name,
				c.kind))
		default:
			errs = append(errs, fmt.Errorf("controller %s: no informer of %s holds this member's share, so that it would miss "+
				"what happens: call rota.ShareInformer (or Rota.NewInformer) for the kind before its factory is asked for it, add "+
				"the handlers to the informer that it returns, and make the queue of it with rota.NewQueue", c.name, c.kind))
		}
	}
	return errors.Join(errs...)
}

// checkClients returns an error if there are queues and no client was wrapped: writes of their workers would have no
// deadline.
func (r *Rota) checkClients() error {
	if r.writes.Wrapped() {
		select {
		case err := <-r.bypassed:
			return err
		default:
			return nil
		}
	}
	for _, c := range r.registered() {
		if r.informerOf(c) != nil && !r.fakes {
			return fmt.Errorf("queue %s: no client was made of what rota.WrapConfig (or WrapTransport) returns, so that writes "+
				"would not end when a slot is lost: wrap the config of every client of the workers and of the informers", c.name)
		}
	}
	return nil
}

// unseen handles a request of an informer that did not go through a wrapped client. Then the rota does not see what
// such clients watch, nor which resource is of which kind, so that writes might not be noted (rule R8). If
// ShareInformer got the client, Run ends.
func (r *Rota) unseen(kind schema.GroupKind) {
	r.mu.Lock()
	shared := slices.ContainsFunc(r.started, func(s start) bool { return s.client && s.kind == kind })
	r.mu.Unlock()
	if r.fakes {
		return
	}
	if shared {
		select {
		case r.bypassed <- fmt.Errorf("informer of %s: its lists and watches do not come through a client of what "+
			"rota.WrapConfig (or WrapTransport) returns, so that the next owner of a slot might not wait for what was written "+
			"in it: give ShareInformer, and the factory, a client of the wrapped config", kind):
		default:
		}
		return
	}
	if _, told := r.toldUnseen.LoadOrStore(kind, true); !told {
		r.log.Info("Lists and watches of an informer do not come through a client of what rota.WrapConfig (or "+
			"WrapTransport) returns, or without their context: writes of its kind are noted only where its resource is the "+
			"regular plural of the kind, or by Rota.Wrote", "kind",
			kind.String())
	}
}

// watchWiring checks for faults that show only while the member works.
func (r *Rota) watchWiring(ctx context.Context) {
	tick := time.NewTicker(startPatience)
	defer tick.Stop()
	ended := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ended = r.checkEnded(ended)
		for _, c := range r.registered() {
			c.checkUnwrapped()
			switch informer := r.informerOf(c); {
			case informer != nil && !r.share.Heard(informer):
				c.fault("no handler", "no event handler was added to the informer that its queue was made with, so that changes "+
					"reach nobody: add it to the informer that rota.ShareInformer returned", "kind", c.kind.String())
			case informer == nil && c.wiring.given.Load() && !c.wiring.added.Load() && !c.wiring.late.Load():
				c.fault("enqueue", "its Enqueue was given objects, and none of them came to its queue: Enqueue has to add to the "+
					"Queue that WrapQueue returned, as that of rota.NewQueue does by itself", "kind", c.kind.String())
			}
		}
	}
}

// faults are mistakes in the wiring that show while they work.
type faults struct {
	mu sync.Mutex
	of map[string]*fault
}

type fault struct {
	text       string
	times      int
	told, last time.Duration
}

// fault notes that a controller is wired wrongly; see Rota.fault.
func (c *Controller) fault(id, text string, details ...any) {
	c.rota.fault("controller "+c.name, id, text, details...)
}

// fault notes that something is wired wrongly. It is logged at once, and from time to time while it recurs.
func (r *Rota) fault(of, id, text string, details ...any) {
	now := r.now()
	r.faults.mu.Lock()
	if r.faults.of == nil {
		r.faults.of = map[string]*fault{}
	}
	f := r.faults.of[of+" "+id]
	if f == nil {
		f = &fault{text: of + ": " + text, told: now - faultPeriod}
		r.faults.of[of+" "+id] = f
	}
	f.times++
	f.last = now
	times := f.times
	tell := now-f.told >= faultPeriod
	if tell {
		f.told = now
	}
	r.faults.mu.Unlock()
	if tell {
		r.log.Error(nil, f.text, append([]any{"times", times}, details...)...)
	}
}

// err returns the faults of the last minute; nil if there are none.
func (f *faults) err(now time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(f.of)) {
		if f := f.of[id]; now-f.last < faultPeriod {
			errs = append(errs, errors.New(f.text))
		}
	}
	return errors.Join(errs...)
}
