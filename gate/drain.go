package gate

import (
	"github.com/rota-dev/rota/internal/mutant"
	"github.com/rota-dev/rota/slot"
)

// Drain readies the slots for a transfer (rule R6): new keys are parked, except those whose object is gone, which are
// still admitted (rule R15). idle is called once for each slot, when nothing is in flight in it and pending
// says that no such key waits; from then on nothing is admitted in the slot until it is opened again. Shut, Open,
// and a lapse end a drain without that call; another Drain of the slot replaces it.
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
		s.drain = &drain{pending: pending, idle: idleFn}
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
	for st.drain != nil && (st.inFlight == 0 || mutant.On(mutant.InFlightIgnored)) {
		d, changes := st.drain, st.changes
		if st.state == draining {
			g.mu.Unlock()
			waits := d.pending(s) && !mutant.On(mutant.DeletionsNotAwaited)
			g.mu.Lock()
			if st.changes != changes {
				continue
			}
			if waits {
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
