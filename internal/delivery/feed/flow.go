package feed

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// flow is a kind's stream on its way to the store: what the store got, at which position, and which pump sends it.
// Package stream decides; a flow serializes the calls.
type flow struct {
	inf    *Informer
	health *health

	// mu also guards health: waits look at both.
	mu      sync.Mutex
	core    *stream.Stream
	pump    *pump   // the one whose events count
	pending *relist // a list that the reflector asked for and whose watch it has not opened yet
	stale   bool    // slots counted as empty while the kind was absent: list everything when it is served again
	past    past
	order   order
	names   names

	kick     signal        // the driver should look
	suspects signal        // there are new doubts
	done     chan struct{} // closed when the informer stops
}

// signal wakes a goroutine. It has a buffer of one.
type signal chan struct{}

func (s signal) raise() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// start sets the stream once the role of the informer is known. keepNames is true if the watch shows all objects.
func (f *flow) start(c stream.Config, keepNames bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core, f.names.on = stream.New(c), keepNames
}

// lacksName reports whether there is no object of that name. It is false if that is not known: names are as old as the
// watch, and slots that were gained may be newer.
func (f *flow) lacksName(name stream.Name) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.core.Behind() && f.names.lacks(name)
}

// at returns the position.
func (f *flow) at() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Position()
}

// Highest returns the highest version sent to the store in the slots.
func (f *flow) Highest(slots []slot.Slot) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Highest(slots)
}

// reached reports whether everything up to a version has been sent to the store in a slot.
func (f *flow) reached(n slot.Slot, version string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Reached([]slot.Slot{n}, version)
}

// sawListed notes that a list showed a deletion in slot n.
func (f *flow) sawListed(n slot.Slot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core.Saw(n, f.core.Listed())
}

// observe has the stream record what it sends until end is called.
func (f *flow) observe() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core.Observe()
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.core.Unobserve()
	}
}

// next returns the driver's next task.
func (f *flow) next() stream.Task {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Next(f.inf.held())
}

// valid reports that no list of everything has overtaken a task.
func (f *flow) valid(t stream.Task) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Valid(t)
}

// outgrown reports whether slots that are not the task's also have to be listed.
func (f *flow) outgrown(t stream.Task) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	more := f.core.Wanted(f.inf.held()).Minus(t.Set)
	return !more.Empty()
}

// isFor reports whether a pump may still run a job for a task.
func (f *flow) isFor(p *pump, t stream.Task) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pump == p && f.core.Valid(t)
}

// settle begins to make a task's slots ready. Handlers believe events of the fresh slots from the next barrier on.
func (f *flow) settle(t stream.Task) (settling stream.Settling, fresh slot.Set, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.core.Valid(t) {
		return settling, fresh, false
	}
	settling = f.core.Settle(t)
	fresh = settling.Fresh
	for _, n := range t.Set.Slots() {
		if f.inf.arrived[n].Load() == never {
			fresh.Add(n)
		}
	}
	return settling, fresh, true
}

// settled marks a task's slots as ready. It returns those that were opened without the kind and are complete now.
func (f *flow) settled(t stream.Task, settling stream.Settling) (late slot.Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.core.Valid(t) {
		return late // a list has overtaken this; its slots are made ready after it
	}
	late = f.health.catchesUp(f.core.Settled(settling))
	f.health.changed()
	return late
}

// warm begins to list a task's slots.
func (f *flow) warm(t stream.Task) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.core.Valid(t) {
		return false
	}
	f.core.Warm(t.Set)
	return true
}

// item reports whether an object of a list is news for the store.
func (f *flow) item(o stream.Object) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Item(o)
}

func (f *flow) listing(version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core.Listing(version)
}

// lacks reports whether the store has an object that a list at a version did not show.
func (f *flow) lacks(name stream.Name, n slot.Slot, listed string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Missing(name, n, listed)
}

// release ends the warming of a task's slots.
func (f *flow) release(p *pump, t stream.Task, version string, strays []stream.Object) (
	outs []stream.Out, v stream.Verdict, ok bool,
) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pump != p || !f.core.Valid(t) {
		return nil, v, false
	}
	outs, v = f.core.Release(nil, t, version, strays)
	return outs, v, true
}

// vacate notes that slots are about to count as empty, and returns the position.
func (f *flow) vacate() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale = true
	f.names.replace(nil)
	return f.core.Position()
}

// needs returns the slots that the stream carries. stale is true if everything has to be listed.
func (f *flow) needs() (needed slot.Set, stale bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Needed(), f.stale
}

// Renew requests a new list of slots, one that starts after this call, when the driver next checks for work.
func (f *flow) Renew(set slot.Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core.Renew(set)
}

// TakeSince removes and returns the versions of the lists that brought the slots, or nil if there were none. recently
// is a version from a moment ago; "" if none is known.
func (f *flow) TakeSince(set slot.Set) (since []string, recently string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	since = f.core.TakeSince(set)
	if since == nil {
		return nil, ""
	}
	return since, f.past.before(time.Now().Add(-backlog))
}

// newList begins a list of slots beside the watch.
func (f *flow) newList(set slot.Set) *relist {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &relist{List: f.core.NewList(set), names: f.names.begin()}
}

// listCarried begins a list of what the stream carries, which is only compared.
func (f *flow) listCarried() *relist {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &relist{List: f.core.NewList(f.core.Carried())}
}

// shows notes the objects on a page of a list, and the names of all of them. It returns an error if the versions cannot
// be ordered.
func (f *flow) shows(r *relist, version string, objects []stream.Object, all []stream.Name) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.names != nil {
		for _, name := range all {
			r.names.add(name)
		}
	}
	if err := f.order.check(f.inf.Kind, version); err != nil {
		return err
	}
	for _, o := range objects {
		if err := f.order.check(f.inf.Kind, o.Version); err != nil {
			return err
		}
		r.Shows(f.core, o)
	}
	return nil
}

// adds streams the objects that exist although they were not listed.
func (f *flow) adds(l *stream.List, found []stream.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range found {
		l.Adds(f.core, o)
	}
}

// sent returns the objects of slots that the stream sent and did not remove since; see stored.
func (f *flow) sent(set slot.Set, upTo string) map[stream.Name]stream.Place {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Stored(set, upTo)
}

// listedNames notes the end of a list beside the watch, and whether it has shown all objects as they are.
func (f *flow) listedNames(r *relist, all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names.listed(r.names, all)
}

// beginList begins the list of everything that the reflector asks for.
func (f *flow) beginList() *relist {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending = f.begin()
	return f.pending
}

// begin starts a list of everything. f.mu is held.
func (f *flow) begin() *relist {
	f.order = order{}
	return &relist{List: f.core.Begin(f.inf.held()), names: f.names.fresh()}
}

// listedAll notes that the reflector has got all of a list.
func (f *flow) listedAll(r *relist, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.version, r.complete = version, true
}

// commit notes that a list at a version has replaced the whole store, or is about to. f.mu is held.
func (f *flow) commit(r *relist, version string) {
	doubted := f.core.Commit(r.List, version)
	if r.Set.Empty() {
		r.names = nil // only the version was wanted
	}
	f.names.replace(r.names)
	f.stale = false
	f.health.cached.slots = slot.Set{}
	if r.cached {
		f.health.usesCache(r.Set, version)
	}
	f.health.changed()
	f.kick.raise()
	if doubted {
		f.suspects.raise()
	}
}

// advance moves the position. f.mu is held.
func (f *flow) advance(version string) {
	if !f.core.Advance(version) {
		return
	}
	f.past.remember(version)
	if len(f.health.waiters) > 0 {
		f.health.changed()
	}
}

// goesOn has a new pump send the events that follow the reflector's list. If there is no such list, the pump is over.
func (f *flow) goesOn(p *pump) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pending := f.pending
	f.pending, f.pump = nil, p
	if pending != nil && pending.complete {
		f.commit(pending, pending.version)
	} else {
		p.over = true
	}
}

// beginsWith has a new pump send all objects first.
func (f *flow) beginsWith(p *pump) *relist {
	f.mu.Lock()
	defer f.mu.Unlock()
	initial := f.begin()
	f.pending, f.pump = nil, p
	return initial
}

// ends notes that a pump runs no more jobs.
func (f *flow) ends(p *pump) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.over = true
	f.health.changed()
}

// decide sets p.outs to what an event sends to the store. passed is true if it sends nothing, like the events of other
// members' objects, which are the most. Then the position has moved past it, unless the pump was replaced.
func (f *flow) decide(p *pump, e *stream.Event) (v stream.Verdict, passed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case p.initial != nil:
		p.outs = p.initial.Event(f.core, p.outs[:0], e)
		if p.initial.names != nil {
			p.initial.names.event(e)
		}
		return v, false
	case f.pump != p: // its events would move the position of its successor
		return v, true
	}
	p.outs, v = f.core.Event(p.outs[:0], e)
	f.names.event(e)
	if passed = len(p.outs) == 0 && len(v.Missed) == 0; passed {
		f.advance(e.Object.Version)
	}
	return v, passed
}

// passes moves the position to a version up to which a pump has sent everything. If initial is not nil, it also ends
// the list that the pump began with.
func (f *flow) passes(p *pump, initial *relist, version string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pump != p {
		return false
	}
	if initial != nil {
		p.initial = nil
		f.commit(initial, version)
	}
	f.advance(version)
	return true
}

// due returns the doubts (stream.Doubt) whose objects have to be looked up now, and the time until the next is due.
func (f *flow) due(now time.Duration) ([]*stream.Doubt, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Due(now)
}

// asks returns how to look up the object of a doubt; see stream.Asks.
func (f *flow) asks(d *stream.Doubt) (atLeast string, pending, current bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.core.Asks(d)
}

// again has the object of a doubt looked up again, later.
func (f *flow) again(d *stream.Doubt, now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core.Again(d, now, firstBackoff, lastRetry)
}

// lookedUp returns what the result of a look-up sends to the store, and whether the doubt has ended.
func (f *flow) lookedUp(p *pump, d *stream.Doubt, found *stream.Object, version string, now time.Duration) (
	outs []stream.Out, ended, ok bool,
) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pump != p {
		return nil, false, false
	}
	outs, ended = f.core.LookedUp(nil, d, found, version, now)
	if !ended {
		f.health.changed()
	}
	return outs, ended, true
}

// ended ends a doubt once its result has been sent: Reached must not report a deletion before.
func (f *flow) ended(d *stream.Doubt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.core.Ended(d)
	f.health.changed()
}

// past remembers the positions of a stream in the last seconds.
type past struct {
	at       [8]time.Time
	versions [8]string
	next     int
	recent   atomic.Bool // one was added within the last second
}

// remember adds a position, one a second. Looking at the clock for every event would be a fifth of what an event of
// another member's object costs.
func (p *past) remember(version string) {
	if p.recent.Load() {
		return
	}
	p.add(time.Now(), version)
	p.recent.Store(true)
	time.AfterFunc(time.Second, func() { p.recent.Store(false) })
}

// add remembers a position, at most one a second.
func (p *past) add(now time.Time, version string) {
	last := (p.next + len(p.at) - 1) % len(p.at)
	if now.Sub(p.at[last]) < time.Second {
		return
	}
	p.at[p.next], p.versions[p.next] = now, version
	p.next = (p.next + 1) % len(p.at)
}

// before returns the latest remembered position from at or before a time, or else the earliest; "" if there is none.
func (p *past) before(t time.Time) string {
	best, earliest := -1, -1
	for i, at := range p.at {
		switch {
		case at.IsZero():
			continue
		case !at.After(t) && (best < 0 || at.After(p.at[best])):
			best = i
		}
		if earliest < 0 || at.Before(p.at[earliest]) {
			earliest = i
		}
	}
	if best < 0 {
		best = earliest
	}
	if best < 0 {
		return ""
	}
	return p.versions[best]
}

// backlog is how old a change may be that the former owner of a slot has not reconciled, because its watch or its queue
// was behind. An older one only loses its place in the queue.
const backlog = 5 * time.Second
