package gate

import (
	"cmp"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
)

// Flight is a key, hold or task in flight.
type Flight struct {
	Key  Key
	Slot slot.Slot
	// For is how long it has been in flight.
	For time.Duration
	// Lost is true if its context has been canceled.
	Lost bool
	// Task is true for a task (Extend); For then counts from the end of its context.
	Task bool
}

// InFlight returns how many keys and holds are in flight, including lost ones.
func (g *Gate) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// InFlightIn returns how many are in flight in slot s.
func (g *Gate) InFlightIn(s slot.Slot) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots[s].inFlight
}

// Parked returns how many keys are parked.
func (g *Gate) Parked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for i := range g.slots {
		n += len(g.slots[i].parked)
	}
	return n
}

// OpenSet returns the slots that currently admit every key. After the deadline it is empty.
func (g *Gate) OpenSet() slot.Set {
	return g.where(func(s *slotState) bool { return s.state == open })
}

// Working returns the slots in which keys are admitted: OpenSet and the slots whose drain is soft, which may last as
// long as a reconcile.
func (g *Gate) Working() slot.Set {
	return g.where(func(s *slotState) bool {
		return s.state == open || s.state == draining && s.drain != nil && !s.drain.hard
	})
}

// where returns the slots for which is returns true. After the deadline it returns none.
func (g *Gate) where(is func(*slotState) bool) slot.Set {
	g.mu.Lock()
	defer g.mu.Unlock()
	var set slot.Set
	if g.now() >= g.deadline {
		return set
	}
	for i := range g.slots {
		if is(&g.slots[i]) {
			set.Add(slot.Slot(i))
		}
	}
	return set
}

// Owns reports whether slot s was opened and has neither been shut nor expired since. It may be draining.
func (g *Gate) Owns(s slot.Slot) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	state := g.slots[s].state
	return g.now() < g.deadline && state != shut && state != lapsed
}

// AdmitsGone reports whether a key of slot s whose object is gone would be admitted now.
func (g *Gate) AdmitsGone(s slot.Slot) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := &g.slots[s]
	return g.now() < g.deadline && (st.state == open || st.state == draining && !st.drain.leaves)
}

// Epoch returns the epoch for which slot s was last opened, 0 if never.
func (g *Gate) Epoch(s slot.Slot) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots[s].epoch
}

// Stuck returns the keys that have been in flight for at least the given time, longest first. It omits holds.
func (g *Gate) Stuck(older time.Duration) []Flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	var out []Flight
	for i := range g.slots {
		for e := g.slots[i].first; e != nil; e = e.next {
			if d := now - e.since; d >= older && !e.hold {
				out = append(out, Flight{Key: e.key, Slot: e.slot, For: d, Lost: e.Err() != nil, Task: e.task})
			}
		}
	}
	slices.SortFunc(out, func(a, b Flight) int { return cmp.Compare(b.For, a.For) })
	return out
}
