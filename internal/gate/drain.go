package gate

import (
	"math"
	"time"

	"github.com/rota-dev/rota/slot"
)

// moment is roughly how long a drain may shut out keys at a time. A drain becomes hard when everything in flight is
// expected to end within a moment, and soft again if that takes more than twice as long.
const moment = 250 * time.Millisecond

// settling is how long a drain waits for everything in flight. After that it waits only for what was in flight when it
// began. With a series of reconciles of unpredictable length, there would always be a long one in flight.
const settling = 5 * time.Second

// drain is a drain under way. At first it is soft: it admits keys unless their reconciles are known to take longer than
// what is in flight anyway. So a reconcile that takes minutes holds up only its own key. The drain becomes hard once
// everything in flight is expected to end within a moment, and soft again if it does not.
//
// Keys that are admitted meanwhile may also take long. So a drain older than settling counts only what was in flight
// when it began. It becomes hard when that has ended, and waits for the rest. If this takes too long, it starts again
// with more patience, so every drain ends. A single unknown key that takes minutes stops the others for half a second.
type drain struct {
	pending func(slot.Slot) bool
	idle    func(slot.Slot)
	hard    bool
	// since is when it last became hard, and begun when it last began.
	since, begun time.Duration
	// patience is how long it stays hard once it has settled. Each new start makes it four times as long.
	patience time.Duration
	// cut is true if long reconciles are cut short (see Cut). The drain has then settled at once.
	cut bool
	// leaves is true if deletions are left to the slot's next owner (see LeaveGone).
	leaves bool
}

// settled reports whether the drain counts only what was in flight when it began.
func (d *drain) settled(now time.Duration) bool { return d.cut || now-d.begun >= settling }

// soften makes a drain soft that has been hard for too long.
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

// Drain prepares the slots for a transfer (rule R6). pending reports whether a key whose object is gone is waiting
// (rule R15).
//
//   - The drain is soft while something in flight takes long, or while pending returns true. Other keys are admitted as
//     before, unless their own reconciles are known to take longer.
//   - Otherwise new keys are parked until nothing is in flight, except keys whose object is gone. Tasks end (Extend).
//   - When nothing is in flight in a slot and pending returns false, idle is called once for the slot. From then on
//     nothing is admitted in it until it is opened again.
//
// Shut, Open and a lapse end a drain without calling idle. Another Drain of the slot replaces it. Call Review regularly
// while drains are under way. A slot that is not open also drains: it only waits for what is still in flight, and
// pending is not called.
//
// Both functions are called without locks of the gate, from Drain itself or from the goroutine that made the slot idle.
// They must not block. pending may be called often.
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

// Recheck makes the gate call pending again for the drain of slot s, because its answer may have changed.
func (g *Gate) Recheck(s slot.Slot) {
	st := &g.slots[s]
	g.mu.Lock()
	// pending takes the queue's lock, and the queue may call the gate under that lock. So it is called without the gate's
	// lock, and its answer is dropped if something changes meanwhile.
	st.changes++
	for st.drain != nil {
		if st.state == draining && g.now() >= g.deadline {
			break // the slot has lapsed; the next check ends the drain
		}
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
			if tasks := g.endTasks(st); len(tasks) > 0 {
				d.since = g.now()
				g.mu.Unlock()
				cancel(tasks, ErrHandover)
				g.mu.Lock()
				continue
			}
			if busy {
				d.since = g.now()
				break
			}
			st.state = idle
		}
		st.drain = nil
		st.changes++ // another goroutine may have called pending for the same drain meanwhile
		g.mu.Unlock()
		d.idle(s)
		return
	}
	g.mu.Unlock()
}

// Review updates the drains of the slots as time passes. It returns the parked keys that may be admitted now, which the
// caller enqueues again. Call it about every 100 ms while left is true: then some of the slots still drain.
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

// LeaveGone makes the drains of the slots leave deletions to the next owner. They no longer wait for keys whose object
// is gone, and park those as well. The caller passes them to the slots' next owner.
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

// Cut cancels, with ErrHandover, all tasks and the reconciles that have been in flight for at least the given time, in
// those slots that drain. Their drains count as settled from now on. The canceled keys are parked when they leave. Keys
// whose object is gone continue unless the drain leaves deletions to the next owner, which would not learn about them
// otherwise. Cut returns the keys whose contexts it ended.
func (g *Gate) Cut(set slot.Set, older time.Duration) (cut []Key) {
	g.mu.Lock()
	var entries []*entry
	g.each(set, func(_ slot.Slot, s *slotState) {
		if s.drain == nil || s.state != draining {
			return
		}
		s.drain.cut, s.drain.patience = true, max(s.drain.patience, 4*older)
		entries = append(entries, g.endTasks(s)...)
		for _, e := range s.entries(nil) {
			if !e.task && g.now()-e.since >= older && (!e.gone || s.drain.leaves) {
				entries = append(entries, e)
				if e.Err() == nil {
					cut = append(cut, e.key)
				}
			}
		}
	})
	g.mu.Unlock()
	cancel(entries, ErrHandover)
	return cut
}

// horizon returns how much longer a soft drain of a slot is expected to wait for what is in flight.
func (g *Gate) horizon(st *slotState) time.Duration {
	if st.drain != nil && st.drain.settled(g.now()) {
		return g.longest(st, st.drain.begun)
	}
	return g.longest(st, math.MaxInt64)
}

// longest returns how much longer the keys in flight since before the given time are expected to take. A key is
// expected to take as long as last time or, if that is unknown, twice as long as it has already taken.
func (g *Gate) longest(st *slotState, before time.Duration) time.Duration {
	var longest time.Duration
	now := g.now()
	for e := st.first; e != nil; e = e.next {
		if e.since >= before {
			continue
		}
		lasted := now - e.since
		left := lasted
		if last := st.long[e.key]; last > lasted && !e.task {
			left = last - lasted
		}
		longest = max(longest, left)
	}
	return longest
}

// fits reports whether a soft drain admits a key: the key is not in flight and is expected to end before something that
// is. If most reconciles take long, unknown keys are expected to take long as well.
func (g *Gate) fits(st *slotState, key Key) bool {
	takes := st.long[key]
	if takes == 0 && st.slow > 0 {
		takes = st.lately
	}
	for e := st.first; e != nil; e = e.next {
		if e.key == key && !e.hold && !e.task {
			return false
		}
	}
	return takes == 0 || takes <= g.horizon(st)
}
