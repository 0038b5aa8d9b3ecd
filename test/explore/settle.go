package explore

import (
	"fmt"

	"github.com/rota-dev/rota/slot"
)

// unsettled says what has not settled yet; empty: all is well. It applies to worlds without further faults.
func (w *world) unsettled() string {
	live := map[string]int{}
	for i := range w.x.Pods {
		b := w.box(i)
		if b.life == rejoined || b.life == running && (b.sig || b.paused || b.lag != 0) {
			return fmt.Sprintf("pod %s is on its way out, or in", podName(i))
		}
		if b.life == running {
			live[w.id(i)] = i
		}
	}
	if len(live) == 0 {
		return ""
	}
	s := w.server()
	t := s.table.table
	switch {
	case t == nil:
		return "no table"
	case t.UID != tableUID(s.table.uid):
		return "table not adopted"
	}
	for id := range live {
		if _, ok := t.Member(id); !ok {
			return id + " is not in the table"
		}
	}
	for _, m := range t.Members {
		if _, ok := live[m.ID]; !ok {
			return m.ID + " is dead, but in the table"
		}
	}
	for i, l := range s.leases {
		_, ok := live[w.x.name(uint8(i))]
		switch {
		case l.exists && !ok:
			return w.x.name(uint8(i)) + " is dead, but has a Lease"
		case l.exists && !l.open:
			return w.x.name(uint8(i)) + " has a Lease that says shut"
		}
	}
	for id, pod := range live {
		if m, _ := t.Member(id); m.Duties != w.x.duties(pod) {
			return fmt.Sprintf("%s announces duties %q", id, m.Duties)
		}
	}
	for at := range w.x.total() {
		if at >= w.x.Slots && t.Duty(slot.Slot(at)) == "" {
			continue // no live member can do it
		}
		r := t.At(slot.Slot(at))
		if r.Owner == "" || r.Next != "" || r.Unsettled {
			return fmt.Sprintf("slot %d has no owner, moves, or is unsettled", at)
		}
		b := w.box(live[r.Owner])
		if b.deadline <= base || b.gate[at] != (gateSlot{gateOpen, int(r.Epoch)}) {
			return fmt.Sprintf("slot %d is not open in %s at epoch %d", at, r.Owner, r.Epoch)
		}
	}
	return w.misplaced(t)
}

// fair chooses the next action of a world without further faults.
func (w *world) fair(acts []act) (act, bool) {
	for _, first := range []func(act) bool{
		func(a act) bool { return a.kind == resume || a.kind == unlag },
		func(a act) bool { return a.kind < advance || a.kind == rejoin },
		func(a act) bool { return a.kind == advance },
	} {
		for _, a := range acts {
			if first(a) {
				return a, true
			}
		}
	}
	return act{}, false
}

// quiet says whether nothing is left to do before time passes.
func quiet(acts []act) bool {
	for _, a := range acts {
		if a.kind < advance || a.kind == rejoin {
			return false
		}
	}
	return true
}
