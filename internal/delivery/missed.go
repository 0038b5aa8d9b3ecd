package delivery

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/slot"
)

// Handlers do not hear of deletions in slots that are not open: while slots are on their way to this member, in a
// handover for instance. They are recorded here, and Open returns them to be enqueued (Opened.Deleted).

// LedElsewhere says whether somebody who is no member works on all objects and hears of their deletions: a leader with
// stock leader election. Meanwhile none are recorded, however long members wait with the slots that they hold.
func (s *Share) LedElsewhere(yes bool) { s.ledElsewhere.Store(yes) }

// IsLedElsewhere returns what LedElsewhere was last told.
func (s *Share) IsLedElsewhere() bool { return s.ledElsewhere.Load() }

// hearsOrMisses reports whether the user may hear of a deletion in slot n, and records the deletion if not. Open flips
// the slots before it takes the lock, so it gets what is recorded here.
func (h *handler) hearsOrMisses(n slot.Slot, about subject) bool {
	i := h.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if h.hears(n) {
		return true
	}
	i.miss(n, about)
	return false
}

// miss records a deletion in a slot that is held. i.mu is held.
func (i *informer) miss(n slot.Slot, about subject) {
	if !i.share.Holds(n) || i.share.IsLedElsewhere() {
		return
	}
	if i.missed[n] == nil {
		i.missed[n] = map[subject]struct{}{}
	}
	i.missed[n][about] = struct{}{}
}

// takeMissed removes and returns the deletions recorded in the slots.
func (i *informer) takeMissed(set slot.Set) []subject {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []subject
	for n, missed := range i.missed {
		if !set.Has(n) {
			continue
		}
		out = slices.AppendSeq(out, maps.Keys(missed))
		delete(i.missed, n)
	}
	return out
}
