package queue

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

const never = time.Duration(math.MaxInt64)

// Config configures a Queue. SetDefaults fills in zero fields.
type Config struct {
	// Slots is the number of slots.
	Slots slot.Count
	// Kinds are the kinds of the keys; see Key.Kind.
	Kinds []string
	// MaxTaken is how many keys of a kind may be taken at a time. 0 means as many as workers ask for.
	MaxTaken map[string]int
	// Length is how long a take lasts if the worker does not ask for a length. Default 30 s. MaxLength is the longest that
	// a worker may ask for at a time. Default 10 min. MinLength is the shortest: nothing is handed out if the member's
	// deadline is nearer. Default 1 s.
	Length, MinLength, MaxLength time.Duration
	// BaseDelay is the delay after a key's first failure. It doubles with each failure, up to MaxDelay. Defaults 5 ms and
	// 1,000 s, like client-go's.
	BaseDelay, MaxDelay time.Duration
	// Patience is how long a key waits for the worker that it prefers. Default 1 s.
	Patience time.Duration
	// Idle is how long a worker that asked with Affine keeps its keys without asking, holding a take, or ending one.
	// Default 5 s.
	Idle time.Duration
	// MaxAffine is how many workers of a kind may ask with Affine. Default 1,000. Each costs time at each change of a key.
	// Further workers are treated as if they were not affine.
	MaxAffine int
	// DrainLimit is how long takes may be extended once their slot drains. Default 1 min.
	DrainLimit time.Duration
}

// SetDefaults fills in zero durations.
func (c *Config) SetDefaults() {
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{
		{&c.Length, 30 * time.Second}, {&c.MinLength, time.Second}, {&c.MaxLength, 10 * time.Minute},
		{&c.BaseDelay, 5 * time.Millisecond}, {&c.MaxDelay, 1000 * time.Second}, {&c.Patience, time.Second},
		{&c.Idle, 5 * time.Second}, {&c.DrainLimit, time.Minute},
	} {
		if *d.of == 0 {
			*d.of = d.value
		}
	}
	if c.MaxAffine == 0 {
		c.MaxAffine = 1000
	}
}

// Validate returns an error if the configuration is invalid.
func (c *Config) Validate() error {
	if err := c.Slots.Validate(); err != nil {
		return err
	}
	if len(c.Kinds) == 0 {
		return errors.New("dispatch: no kinds: name at least one")
	}
	seen := map[string]bool{}
	for _, name := range c.Kinds {
		if name == "" || seen[name] {
			return fmt.Errorf("dispatch: kind %q: each must have a name, and be there once", name)
		}
		seen[name] = true
	}
	for name, n := range c.MaxTaken {
		if !seen[name] || n < 0 {
			return fmt.Errorf("dispatch: MaxTaken %d of kind %q: must not be negative, and of one of Kinds", n, name)
		}
	}
	switch {
	case c.MinLength <= 0 || c.MinLength > c.Length || c.Length > c.MaxLength:
		return fmt.Errorf("dispatch: MinLength %v, Length %v, MaxLength %v: must be above 0 and rise", c.MinLength, c.Length,
			c.MaxLength)
	case c.BaseDelay <= 0 || c.BaseDelay > c.MaxDelay:
		return fmt.Errorf("dispatch: BaseDelay %v, MaxDelay %v: must be above 0 and rise", c.BaseDelay, c.MaxDelay)
	case c.MaxAffine < 0:
		return fmt.Errorf("dispatch: MaxAffine %d: must not be negative", c.MaxAffine)
	case c.Patience < 0 || c.Idle <= 0 || c.DrainLimit <= 0:
		return fmt.Errorf("dispatch: Patience %v, Idle %v, DrainLimit %v: must not be negative, the last two above 0",
			c.Patience, c.Idle, c.DrainLimit)
	}
	return nil
}

// Action is a request to the queue's caller.
type Action interface{ action() }

// Given answers an Ask.
type Given struct {
	Ask   uint64
	Takes []Take
	// Over is true if the Ask has ended and gets no other answer. A poll ends with its first answer, which is empty if it
	// timed out.
	Over bool
}

// Drained reports that nothing in the slots is taken, and nothing will be until they are opened again.
type Drained struct{ Slots slot.Set }

func (Given) action()   {}
func (Drained) action() {}

// objectName is a key without its kind.
type objectName struct{ namespace, name string }

// kind holds the keys of one kind.
type kind struct {
	name    string
	entries map[objectName]*entry
	failing map[*entry]struct{} // entries with a failure
	// The lanes hold the ready keys: all holds those for any worker, and workers those that prefer one worker.
	all     lane
	workers map[string]*share
	shares  []hashed // of workers, in no order
	ready   int      // keys in all lanes
	// heads are the shares that have keys, ordered by since when their heads are ready.
	heads timers[*share]
	// waiting are the waiting asks for the kind, in order. Asks that have ended stay in it for a while.
	waiting []waiter
	over    int  // how many of waiting have ended
	hungry  int  // how many of the others want keys
	stirred bool // keys have become ready since the last match
	delayed int
	taken   int
	most    int // how many may be taken, or 0 for any number
	counts  Counts
}

// slotState is the queue's state of a slot.
type slotState struct {
	held     bool // changes count
	open     bool // keys are handed out
	draining bool
	epoch    uint64
	since    time.Duration // of the drain
	first    *entry        // of the slot's keys
	taken    int
}

// Queue hands out keys. See the package comment. Create it with New.
type Queue struct {
	cfg      Config
	kinds    []*kind
	byName   map[string]*kind
	slots    []slotState
	deadline time.Duration
	late     bool // the deadline was too near at the last match
	matching bool
	delays   timers[*entry]
	takes    timers[*taken]
	byID     map[uint64]*taken
	lastTake uint64
	done     recent
	asks     map[uint64]*ask
	ends     timers[*ask]
	workers  map[string]*worker
	idle     timers[*worker]
	turn     int
	drained  slot.Set
	given    []Given
}

// New returns a queue in which no slot is open.
func New(cfg Config) (*Queue, error) {
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	q := &Queue{
		cfg: cfg, byName: map[string]*kind{}, slots: make([]slotState, cfg.Slots), byID: map[uint64]*taken{},
		asks: map[uint64]*ask{}, workers: map[string]*worker{},
	}
	for _, name := range cfg.Kinds {
		k := &kind{name: name, entries: map[objectName]*entry{}, failing: map[*entry]struct{}{},
			workers: map[string]*share{}, most: cfg.MaxTaken[name]}
		k.all.kind = k
		q.kinds, q.byName[name] = append(q.kinds, k), k
	}
	return q, nil
}

// SetDeadline sets until when this member may work (rule R2). Nothing is handed out shortly before that, and no take
// that begins or is extended from now on lasts longer.
func (q *Queue) SetDeadline(now, at time.Duration) {
	q.tick(now)
	q.deadline = at
	for _, k := range q.kinds {
		k.stirred = true
	}
}

// later returns the time d after now.
func later(now, d time.Duration) time.Duration {
	if d > never-now {
		return never
	}
	return now + d
}

// Change records that an object has to be worked on. Changes in slots that are not held are dropped. See Hold. The
// error is ErrKind, or about the slot.
func (q *Queue) Change(now time.Duration, c Change) error {
	k := q.byName[c.Key.Kind]
	if k == nil {
		return fmt.Errorf("%w: %s", ErrKind, c.Key.Kind)
	}
	if int(c.Slot) >= len(q.slots) {
		return fmt.Errorf("slot %v of %s: there are %d", c.Slot, c.Key, len(q.slots))
	}
	q.tick(now)
	name := objectName{c.Key.Namespace, c.Key.Name}
	e := k.entries[name]
	if e != nil && e.slot != c.Slot {
		return fmt.Errorf("%s is in slot %v, and now in %v: slots must go by names", c.Key, e.slot, c.Slot)
	}
	s := &q.slots[c.Slot]
	if !s.held {
		return nil
	}
	if e == nil {
		e = &entry{kind: k, namespace: name.namespace, name: name.name, uid: c.UID, slot: c.Slot, class: c.Class, place: -1}
		k.entries[name] = e
		if e.nextIn = s.first; s.first != nil {
			s.first.prevIn = e
		}
		s.first = e
	}
	if !c.Related && (c.Version == "" || resourceversion.Compare(e.version, c.Version) <= 0) {
		e.uid, e.version, e.gone = c.UID, c.Version, c.Gone
	} // else a list or another watch reports a state before the last event
	k.counts.Changes++
	if e.pending && e.due <= now && e.class <= c.Class {
		k.counts.Collapsed++
		return nil // it is ready, or will be when its take has ended
	}
	q.displace(e)
	if !e.pending || c.Class < e.class {
		e.class = c.Class
	}
	if !e.pending || e.due > now {
		e.since = now
	}
	e.pending, e.due = true, now
	q.place(now, e)
	return nil
}

// place moves a pending key to where it belongs.
func (q *Queue) place(now time.Duration, e *entry) {
	s := &q.slots[e.slot]
	switch {
	case !e.pending || e.take != nil || !s.open || s.draining:
	case e.due > now:
		q.delays.add(e)
		e.kind.delayed++
	default:
		e.kind.laneFor(e).add(e)
		e.kind.stirred = true
	}
}

// displace removes a key from where it waits or is ready.
func (q *Queue) displace(e *entry) {
	if e.place >= 0 {
		q.delays.remove(e)
		e.kind.delayed--
	}
	e.leave()
}

// forget removes a key without pending work.
func (q *Queue) forget(e *entry) {
	e.succeeds()
	delete(e.kind.entries, objectName{e.namespace, e.name})
	if len(e.kind.entries) == 0 {
		e.kind.entries = map[objectName]*entry{} // a map never shrinks
	}
	if e.prevIn != nil {
		e.prevIn.nextIn = e.nextIn
	} else {
		q.slots[e.slot].first = e.nextIn
	}
	if e.nextIn != nil {
		e.nextIn.prevIn = e.prevIn
	}
	e.nextIn, e.prevIn = nil, nil
}

// lose drops a key and its take.
func (q *Queue) lose(e *entry) {
	q.displace(e)
	if e.take != nil {
		q.endTake(e.take)
	}
	q.forget(e)
}

// Hold makes changes of the slots count from now on. After that add all their objects with Change, and then call Open.
func (q *Queue) Hold(now time.Duration, set slot.Set) {
	q.tick(now)
	for s := range q.each(set) {
		q.slots[s].held = true
	}
}

// Held returns the slots whose changes count.
func (q *Queue) Held() (set slot.Set) {
	for s := range q.slots {
		if q.slots[s].held {
			set.Add(slot.Slot(s)) // at most slot.MaxCount
		}
	}
	return set
}

// Open hands out keys of the slots from now on, and holds the slots. It also ends a drain.
func (q *Queue) Open(now time.Duration, set slot.Set, epoch uint64) {
	q.tick(now)
	for s := range q.each(set) {
		st := &q.slots[s]
		st.held, st.open, st.draining, st.epoch = true, true, false, epoch
		q.drained.Remove(s)
		for e := st.first; e != nil; e = e.nextIn {
			if e.line == nil && e.place < 0 {
				q.place(now, e)
			}
		}
	}
}

// Drain stops handing out keys of the slots. When nothing in a slot is taken any more, Drained reports it. Keys stay
// until Open or Shut.
func (q *Queue) Drain(now time.Duration, set slot.Set) {
	q.tick(now)
	for s := range q.each(set) {
		st := &q.slots[s]
		if st.draining {
			if st.taken == 0 {
				q.drained.Add(s) // a repeated call gets another answer
			}
			continue
		}
		st.held, st.open, st.draining, st.since = true, false, true, now
		for e := st.first; e != nil; e = e.nextIn {
			q.displace(e)
		}
		if st.taken == 0 {
			q.drained.Add(s)
		}
	}
}

// Shut drops the slots' keys and takes.
func (q *Queue) Shut(now time.Duration, set slot.Set) {
	q.tick(now)
	for s := range q.each(set) {
		for q.slots[s].first != nil {
			q.lose(q.slots[s].first)
		}
		q.slots[s] = slotState{}
		q.drained.Remove(s)
	}
}

func (q *Queue) each(set slot.Set) func(func(slot.Slot) bool) {
	return func(yield func(slot.Slot) bool) {
		for _, s := range set.Slots() {
			if int(s) < len(q.slots) && !yield(s) {
				return
			}
		}
	}
}

// Gone returns the deletions in the slots that no worker has finished. The next owner of the slots does not see them in
// a list (rule R15).
func (q *Queue) Gone(set slot.Set) []Change {
	var out []Change
	for s := range q.each(set) {
		for e := q.slots[s].first; e != nil; e = e.nextIn {
			if e.gone && (e.pending || e.take != nil) {
				out = append(out, Change{Key: e.key(), Slot: e.slot, UID: e.uid, Version: e.version, Gone: true})
			}
		}
	}
	return out
}

// tick handles everything that is due.
func (q *Queue) tick(now time.Duration) {
	for {
		e, ok := q.delays.due(now)
		if !ok {
			break
		}
		e.kind.delayed--
		e.since = e.due
		q.place(now, e)
	}
	for {
		t, ok := q.takes.due(now)
		if !ok {
			break
		}
		t.entry.kind.counts.Expired++
		q.failed(now, t, 0, expiredReason)
	}
	for {
		w, ok := q.idle.due(now)
		if !ok {
			break
		}
		q.checkIdle(now, w)
	}
}

// Wake is when Actions should be called next if nothing else happens before.
func (q *Queue) Wake() time.Duration {
	at := min(q.delays.next(), q.takes.next(), q.idle.next(), q.ends.next())
	if q.late { // SetDeadline comes first
		return at
	}
	for _, k := range q.kinds {
		at = min(at, k.patience(q.cfg.Patience))
	}
	return at
}

// Actions returns the actions since the last call. Call it after other methods, possibly once for several, and when
// Wake has come.
func (q *Queue) Actions(now time.Duration) []Action {
	q.tick(now)
	q.match(now)
	for {
		a, ok := q.ends.due(now)
		if !ok {
			break
		}
		q.finish(now, a)
		q.given = append(q.given, Given{Ask: a.ID, Over: true})
	}
	var out []Action
	for _, g := range q.given {
		out = append(out, g)
	}
	q.given = nil
	if !q.drained.Empty() {
		out = append(out, Drained{q.drained})
		q.drained = slot.Set{}
	}
	return out
}
