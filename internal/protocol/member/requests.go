package member

import (
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// requests collects one Step's requests by slot.
type requests struct {
	hold, warm, drain, open, shut, release slot.Set
	// last are slots to drain whose deletions cannot be left to a next owner.
	last slot.Set
	load []loadGroup
	// mayDrain is the result of gathered. mayOpen is set once a renewal has reported the gate as open (rule R5).
	mayDrain, mayOpen bool
}

// loadGroup is a set of slots that one Load names.
type loadGroup struct {
	epoch uint64
	cause table.Cause
	held  bool
	slots slot.Set
}

// beginDrain requests a drain of the slot.
func (req *requests) beginDrain(t *table.Table, s slot.Slot, r table.Run, l *slotState) {
	l.state = draining
	if handsOver(t, r) {
		req.drain.Add(s)
	} else {
		req.last.Add(s)
	}
}

// handsOver reports whether the next owner of a run can receive the deletions that it has to reconcile (rule R15).
func handsOver(t *table.Table, r table.Run) bool { return r.Next != "" && t.Reads(table.GoneFormat) }

// reopen opens a drained slot that stays. If it was never loaded, or was shut since then, it is loaded first.
func (req *requests) reopen(s slot.Slot, l *slotState) {
	if l.heldSince != l.epoch || l.shut {
		l.state, l.shut = loading, false
		req.addLoad(s, l, table.CauseAssigned)
		return
	}
	l.state = loaded
	req.openLoaded(s, l)
}

// openLoaded opens a loaded slot if the gate may open.
func (req *requests) openLoaded(s slot.Slot, l *slotState) {
	if req.mayOpen {
		l.state = open
		req.open.Add(s)
	}
}

func (req *requests) addLoad(s slot.Slot, l *slotState, cause table.Cause) {
	key := loadGroup{epoch: l.epoch, cause: cause, held: l.heldSince == l.epoch}
	for i := range req.load {
		if g := &req.load[i]; g.epoch == key.epoch && g.cause == key.cause && g.held == key.held {
			g.slots.Add(s)
			return
		}
	}
	key.slots.Add(s)
	req.load = append(req.load, key)
}

// dutiesIn returns the names of the duties in the slots, or nil if there are none.
func dutiesIn(t *table.Table, set slot.Set) map[slot.Slot]string {
	var names map[slot.Slot]string
	for i, name := range t.Duties {
		if s := slot.Slot(int(t.Slots) + i); name != "" && set.Has(s) {
			if names == nil {
				names = map[slot.Slot]string{}
			}
			names[s] = name
		}
	}
	return names
}
