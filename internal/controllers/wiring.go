package controllers

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// wiring records what a controller's calls have shown about its wiring.
type wiring struct {
	late                           atomic.Bool // ExpectKindLate was called
	given, added, admitted, forgot atomic.Bool
}

// ExpectKindLate lets Run join although the controller's kind has no informer yet: the adapter waits until the kind is
// installed and then makes one. Call it before Run.
func (c *Controller) ExpectKindLate() { c.wiring.late.Store(true) }

// IsKindLate reports whether ExpectKindLate was called.
func (c *Controller) IsKindLate() bool { return c.wiring.late.Load() }

// Check looks for wiring mistakes that show only while the member works.
func (c *Controller) Check() {
	c.CheckClients()
	switch informer := c.Informer; {
	case informer != nil && !c.env.Share.Heard(informer):
		c.fault("no handler", "no event handler was added to the informer that its queue was made with, so that changes "+
			"are missed: add it to the informer that rota.ShareInformer returned", "kind", c.Kind.String())
	case informer == nil && c.wiring.given.Load() && !c.wiring.added.Load() && !c.IsKindLate():
		c.fault("enqueue", "its Enqueue was given objects, and none of them came to its queue: Enqueue has to add to the "+
			"Queue that NewQueue returned, as the Enqueue of rota.NewQueue does", "kind", c.Kind.String())
	}
}

// fault records that the controller is wired wrongly; see Faults.Note.
func (c *Controller) fault(id, text string, details ...any) {
	c.env.Faults.Note("controller "+c.Name, id, text, details...)
}

// CheckClients reports a controller that sends requests through clients that were not wrapped. If it uses no wrapped
// ones, its writes are not safe, which is a fault. Otherwise those requests may be reads, and CheckClients only logs.
func (c *Controller) CheckClients() {
	wrapped := c.requests.Wrapped.Load()
	switch unwrapped := c.requests.All.Load() - wrapped; {
	case unwrapped <= 0 || c.env.Writes.ByHand():
	case wrapped == 0:
		c.fault("unwrapped client", "the clients that its workers use were not made of what rota.WrapConfig (or "+
			"WrapTransport) returns, so that their writes go on when a slot is lost, and its next owner does not wait until it "+
			"sees them: make the clients of the wrapped config, or note what they write with Rota.Wrote", "requests", unwrapped)
	case !c.loggedUnwrapped.Swap(true):
		c.env.Log.Info("Some requests of reconciles go to the API server through a client that was not made of what "+
			"rota.WrapConfig (or WrapTransport) returns. That is right for reads. Writes through it go on when a slot is lost, "+
			"and its next owner does not wait until it sees them", "controller", c.Name, "requests", unwrapped)
	}
}

// faultPeriod is the time between two log lines about a recurring fault, and how long after its last occurrence a fault
// is forgotten.
const faultPeriod = time.Minute

// Faults collects wiring mistakes that show while the member works. Its methods may be called concurrently.
type Faults struct {
	now func() time.Duration
	log logr.Logger

	mu sync.Mutex
	of map[string]*fault
}

type fault struct {
	text         string
	times        int
	logged, last time.Duration
}

// NewFaults returns an empty Faults. now returns the monotonic time.
func NewFaults(now func() time.Duration, log logr.Logger) *Faults {
	return &Faults{now: now, log: log, of: map[string]*fault{}}
}

// Note records that something is wired wrongly. It logs at once, and from time to time while the fault recurs.
func (a *Faults) Note(of, id, text string, details ...any) {
	now := a.now()
	a.mu.Lock()
	f := a.of[of+" "+id]
	if f == nil {
		f = &fault{text: of + ": " + text, logged: now - faultPeriod}
		a.of[of+" "+id] = f
	}
	f.times++
	f.last = now
	times := f.times
	due := now-f.logged >= faultPeriod
	if due {
		f.logged = now
	}
	a.mu.Unlock()
	if due {
		a.log.Error(nil, f.text, append([]any{"times", times}, details...)...)
	}
}

// Err returns the faults of the last minute, or nil.
func (a *Faults) Err() error {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(a.of)) {
		if f := a.of[id]; now-f.last < faultPeriod {
			errs = append(errs, errors.New(f.text))
		}
	}
	return errors.Join(errs...)
}
