package gate

import (
	"math"
	"time"

	"github.com/rota-dev/rota/slot"
)

// moment is how long a drain may shut out keys at a time, or about so: it shuts the gate when all that is in flight is
// expected to end within it, and opens it again where that takes more than twice as long.
const moment = 250 * time.Millisecond

// settling is how long a drain waits for whatever is in flight. Then it waits for what it began with alone: where
// reconciles of unpredictable length follow each other, one is in flight at any time that takes long.
const settling = 5 * time.Second

// longMax bounds how many keys of a slot are remembered whose reconciles take longer than a moment.
const longMax = 1024

// drain is a drain under way. It is soft first: keys go on being admitted but those whose reconciles are known to take
// longer than what is in flight anyway. So a reconcile that takes minutes holds up its own key alone. It is hard once
// everything in flight is expected to end within a moment, and soft again if it does not.
//
// Keys that are admitted meanwhile may take long in their turn. So a drain that is older than settling counts only what
// was in flight when it began, becomes hard when that has ended, and waits for the rest. If this takes too long it
// begins anew, with more patience. So it ends whatever comes, and a single unknown key that takes minutes stops the
// others for half a second.
type drain struct {
	pending func(slot.Slot) bool
	idle    func(slot.Slot)
	hard    bool
	// since is when it became hard, begun when it began, the last time.
	since, begun time.Duration
	// patience is how long it is hard at most once it has settled: four times as long with each new beginning.
	patience time.Duration
	// cut says that what takes long is cut short, so that it has settled at once.
	cut bool
	// leaves says that deletions are left to the slot's next owner: see LeaveGone.
	leaves bool
}

// settled says whether the drain counts only what was in flight when it began.
func (d *drain) settled(now time.Duration) bool { return d.cut || now-d.begun >= settling }

// soften makes a drain soft that has been hard for too long for what is still in flight.
func (d *drain) soften(now time.Duration) {
	settled, patience := d.settled(now), 2*moment
	if settled {
		patience = d.patience
	}
	if now-d.since <= patience {
		return
	}
	d.hard = false
	if settled {
		d.begun, d.patience = now, 4*d.patience
	}
}

// Drain readies the slots for a transfer (rule R6). While something is in flight that takes long, or pending says that
// a key waits whose object is gone, other keys are admitted as before, unless their own reconciles are known to take
// longer; otherwise new keys are parked, except those whose object is gone (rule R15), until nothing is in flight. idle
// is called once for each slot, when nothing is in flight in it and pending says that no such key waits; from then on
// nothing is admitted in the slot until it is opened again. Shut, Open, and a lapse end a drain without that call;
// another Drain of the slot replaces it. Call Review now and then while drains are under way.
//
// A slot that is not open drains as well: it only waits for what is still in flight, and pending is not asked.
//
// Both functions are called without locks of the gate, from Drain itself or from whatever goroutine made the slot
// idle; pending may be called often. They must not block.
func (g *Gate) Drain(set slot.Set, pending func(slot.Slot) bool, idleFn func(slot.Slot)) {
	var slots []slot.Slot
	g.mu.Lock()
	g.each(set, func(n slot.Slot, s *slotState) {
		if s.state == open {
			s.state = draining
		}
		s.drain = &drain{pending: pending, idle: idleFn, begun: g.now(), patience: 2 * moment}
		s.changes++
		slots = append(slots, n)
	})
	g.mu.Unlock()
	for _, s := range slots {
		g.Recheck(s)
	}
}

// Recheck says that the answer of a drain's pending may have changed for slot s.
func (g *Gate) Recheck(s slot.Slot) {
	st := &g.slots[s]
	g.mu.Lock()
	// pending takes the queue's lock, under which the queue may call the gate: it is asked without the gate's.
	// Whatever changes meanwhile makes its answer void.
	st.changes++
	for st.drain != nil {
		d, busy := st.drain, st.inFlight > 0
		if busy && (d.hard || st.state != draining || g.horizon(st) > moment) {
			break
		}
		if st.state == draining {
			changes, leaves := st.changes, d.leaves
			g.mu.Unlock()
			waits := !leaves && d.pending(s)
			g.mu.Lock()
			if st.changes != changes {
				continue
			}
			if d.hard = !waits; waits {
				break
			}
			if busy {
				d.since = g.now()
				break
			}
			st.state = idle
		}
		st.drain = nil
		st.changes++ // for who asked pending of the same drain meanwhile
		g.mu.Unlock()
		d.idle(s)
		return
	}
	g.mu.Unlock()
}

// Review looks at the drains of the slots as time passes, and returns the keys parked in them that may be admitted now:
// the caller enqueues them again. Call it about every 100 ms until it says that none of the slots is draining any more.
func (g *Gate) Review(set slot.Set) (parked []Key, left bool) {
	var slots []slot.Slot
	g.mu.Lock()
	g.each(set, func(n slot.Slot, s *slotState) {
		if s.drain == nil {
			return
		}
		slots = append(slots, n)
		if s.state != draining {
			return
		}
		if s.drain.hard && g.longest(s, math.MaxInt64) > moment {
			s.drain.soften(g.now())
		}
		if s.drain.hard || g.now() >= g.deadline {
			return
		}
		for key := range s.parked {
			if !s.parked[key] && g.fits(s, key) {
				parked = append(parked, key)
				delete(s.parked, key)
			}
		}
	})
	g.mu.Unlock()
	for _, s := range slots {
		g.Recheck(s)
	}
	return parked, len(slots) > 0
}

// LeaveGone has drains of the slots wait no longer for keys whose object is gone: from now on these are parked as well, until
// the drain ends. The caller tells the slots' next owner of them.
func (g *Gate) LeaveGone(set slot.Set) {
	var slots []slot.Slot
	g.mu.Lock()
	g.each(set, func(n slot.Slot, s *slotState) {
		if s.drain != nil && s.state == draining && !s.drain.leaves {
			s.drain.leaves = true
			s.changes++
			slots = append(slots, n)
		}
	})
	g.mu.Unlock()
	for _, s := range slots {
		g.Recheck(s)
	}
}

// Cut cancels with ErrHandover what has been in flight for at least the given time in those of the slots that drain. It
// admits nothing more in them as soon as what they began to drain with has ended.
// Its keys are parked when they leave. Those whose object is gone are left alone, unless the drain leaves them to the
// slot's next owner: nobody else would know of them.
func (g *Gate) Cut(set slot.Set, older time.Duration) {
	g.mu.Lock()
	var entries []*entry
	g.each(set, func(_ slot.Slot, s *slotState) {
		if s.drain == nil || s.state != draining {
			return
		}
		s.drain.cut, s.drain.patience = true, max(s.drain.patience, 4*older)
		for _, e := range s.entries(nil) {
			if g.now()-e.since >= older && (!e.gone || s.drain.leaves) {
				entries = append(entries, e)
			}
		}
	})
	g.mu.Unlock()
	cancel(entries, ErrHandover)
}

// horizon is how much longer the drain of a slot is expected to wait for what is in flight before it becomes hard.
func (g *Gate) horizon(st *slotState) time.Duration {
	if st.drain != nil && st.drain.settled(g.now()) {
		return g.longest(st, st.drain.begun)
	}
	return g.longest(st, math.MaxInt64)
}

// longest is how much longer what is in flight in a slot since before the given time is expected to take: as long as
// the last time, or else as long again as it has taken.
func (g *Gate) longest(st *slotState, before time.Duration) time.Duration {
	var longest time.Duration
	now := g.now()
	for e := st.first; e != nil; e = e.next {
		if e.since >= before {
			continue
		}
		lasted := now - e.since
		left := lasted
		if last := st.long[e.key]; last > lasted {
			left = last - lasted
		}
		longest = max(longest, left)
	}
	return longest
}

// fits says that a soft drain admits a key: it is not in flight, and is expected to end before something that is. Where
// most reconciles take long, those of unknown keys are expected to.
func (g *Gate) fits(st *slotState, key Key) bool {
	takes := st.long[key]
	if takes == 0 && st.slow > 0 {
		takes = st.lately
	}
	for e := st.first; e != nil; e = e.next {
		if e.key == key && !e.hold {
			return false
		}
	}
	return takes == 0 || takes <= g.horizon(st)
}

// learn remembers how long a reconcile took.
func (st *slotState) learn(key Key, took time.Duration) {
	if took < moment {
		delete(st.long, key)
		st.slow = max(st.slow-1, -slowMax)
		return
	}
	st.slow, st.lately = min(st.slow+1, slowMax), took
	if st.long == nil {
		st.long = map[Key]time.Duration{}
	}
	if _, known := st.long[key]; !known && len(st.long) >= longMax {
		for other := range st.long {
			delete(st.long, other)
			break
		}
	}
	st.long[key] = took
}

// slowMax is after how many reconciles of the other sort a slot's are taken for fast or slow.
const slowMax = 8
