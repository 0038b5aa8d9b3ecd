package sim

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// Unsettled says what is not as it should be when nothing has gone wrong for a while; empty: all is well.
func (w *World) Unsettled() string {
	s := w.Objects.Table()
	live := map[string]*Node{}
	for _, n := range w.Live() {
		if n.Leaving {
			return n.ID + " has not left"
		}
		if n.Stopped != nil {
			return n.ID + " has stopped, and has not ended"
		}
		live[n.ID] = n
	}
	if len(live) == 0 {
		return ""
	}
	t := s.Table
	switch {
	case t == nil:
		return "no table"
	case t.UID != s.UID:
		return "table not adopted"
	}
	for id := range live {
		if _, ok := t.Member(id); !ok {
			return id + " is not in the table"
		}
	}
	total, fair, mixed := 0, true, false // fair: nobody is on probation
	for _, m := range t.Members {
		if live[m.ID] == nil {
			return m.ID + " is dead, but in the table"
		}
		if !t.Drained(m.ID) {
			total += m.Weight
		}
		mixed = mixed || m.Build != t.Members[0].Build
		fair = fair && !w.probation(t, m)
	}
	for _, l := range w.Objects.Leases() {
		if live[l.ID] == nil {
			return l.ID + " is dead, but has a Lease"
		}
		if !l.Open {
			return l.ID + " has a Lease that says shut"
		}
	}
	for _, r := range t.Runs {
		switch {
		case r.Owner == "" && w.isDuty(r.Slots.First):
			continue // see dutiesUnsettled
		case r.Owner == "":
			return fmt.Sprintf("slots %v have no owner", r.Slots)
		case r.Next != "":
			return fmt.Sprintf("slots %v are moving", r.Slots)
		case r.Unsettled:
			return fmt.Sprintf("slots %v are unsettled", r.Slots)
		}
		n := live[r.Owner]
		if err := n.Work.faults.Err(); err != nil && w.wild { // scripts take keys that were not added
			return fmt.Sprintf("%s reports wrong wiring of its controller: %v", n.ID, err)
		}
		if w.opts.Idle != nil {
			if why := w.opts.Idle(n); why != "" {
				return why
			}
		}
		open := n.Open()
		for at := r.Slots.First; at <= r.Slots.Last; at++ {
			if !open.Has(at) || n.gate.Epoch(at) != r.Epoch {
				return fmt.Sprintf("slot %v is not open in %s at epoch %d", at, r.Owner, r.Epoch)
			}
		}
	}
	even := fair && !t.Paused() && total > 0 && !t.Canary.On() && len(t.Pins) == 0
	if why := w.dutiesUnsettled(t, even && len(t.Drains) == 0); why != "" {
		return why
	}
	if why := w.undrained(t, fair); why != "" {
		return why
	}
	if why := w.misplaced(t, fair); why != "" {
		return why
	}
	if why := w.incomplete(); why != "" {
		return why
	}
	if why := w.unreconciled(); why != "" && w.wild {
		return why
	}
	byLoad, byNumber := false, false
	for _, n := range live {
		byLoad, byNumber = byLoad || n.cfg.ByLoad, byNumber || !n.cfg.ByLoad
	}
	for id, got := range t.Counts() {
		m, ok := t.Member(id)
		if !ok || !even || t.Drained(id) {
			continue
		}
		if byLoad {
			if got == 0 && !mixed && !byNumber && len(t.Members) <= int(t.Slots) {
				return id + " owns no slots"
			}
			continue // what it should own depends on loads
		}
		share := int(t.Slots) * m.Weight // times total
		low, high := share-total, share+total
		if mixed { // a rollout tolerates up to 1.25 times the share
			low, high = 0, max(share+total, share*5/4)
		}
		if got*total < low || got*total > high {
			return fmt.Sprintf("%s owns %d slots of %d with weight %d of %d", id, got, t.Slots, m.Weight, total)
		}
	}
	return ""
}

// probation says that a member may be without slots since it crashed twice lately (rule R9).
func (w *World) probation(t *table.Table, m table.Member) bool {
	n := 0
	for _, e := range t.Expels {
		if e.Pod == m.Pod {
			n++
		}
	}
	return n >= 2
}

// Settle runs until all is well, for at most limit. It violates "settle" otherwise.
func (w *World) Settle(limit time.Duration) {
	why, well := "", 0
	for end := w.now + limit; w.now < end && !w.Failed(); {
		w.Run(time.Second)
		if why = w.Unsettled(); why != "" {
			well = 0
			continue
		}
		if well++; well == 3 {
			return
		}
	}
	if !w.Failed() {
		w.violate("settle", "after %v without faults: %s", limit, why)
	}
}
