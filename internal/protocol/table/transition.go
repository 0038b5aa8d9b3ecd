package table

import (
	"slices"

	"github.com/rota-dev/rota/slot"
)

// The transitions below change their table. Call them on a Clone, then call Seal.

// Put adds the member, or replaces the one with the same ID. It adds the duties that the member announces.
func (t *Table) Put(m Member) {
	t.addDuties(m)
	i, ok := t.find(m.ID)
	if ok {
		t.Members[i] = m
		return
	}
	t.Members = slices.Insert(t.Members, i, m)
}

// Remove removes the member from Members and from every Next. Its slots lose their owner.
func (t *Table) Remove(id string) {
	if i, ok := t.find(id); ok {
		t.Members = slices.Delete(t.Members, i, i+1)
	}
	for i := range t.Runs {
		r := &t.Runs[i]
		if r.Next == id {
			r.Next, r.Ready = "", false
		}
		if r.Owner == id {
			*r = Run{Slots: r.Slots, Epoch: r.Epoch}
		}
	}
}

// Update changes the state of the slots in set. It calls change for runs of slots that share a state. change must not
// modify Slots.
func (t *Table) Update(set slot.Set, change func(*Run)) {
	if set.Empty() {
		return
	}
	var out []Run
	for _, r := range t.Runs {
		inside := slot.SetOf(r.Slots)
		inside = inside.Intersect(set)
		if inside.Empty() {
			out = append(out, r)
			continue
		}
		outside := slot.SetOf(r.Slots)
		outside = outside.Minus(set)
		var parts []Run
		for _, part := range inside.Ranges() {
			changed := r
			changed.Slots = part
			change(&changed)
			changed.Slots = part
			parts = append(parts, changed)
		}
		for _, part := range outside.Ranges() {
			kept := r
			kept.Slots = part
			parts = append(parts, kept)
		}
		slices.SortFunc(parts, func(a, b Run) int { return int(a.Slots.First) - int(b.Slots.First) })
		out = append(out, parts...)
	}
	t.Runs = out
}

// Seal sets the epoch, which must be above the table's. It merges runs with the same state. It drops notes and
// deletions that no unsettled run needs, duties that no member announces, orders that have ended, and labels if there
// are no pins. It clears Older once a member that does not read DutyFormat is in the table.
func (t *Table) Seal(epoch uint64) {
	t.Epoch = epoch
	t.dropDuties()
	t.dropEndedOrders()
	t.dropLabels()
	if !t.Reads(DutyFormat) {
		t.Older = 0 // the process has joined
	}
	merged := t.Runs[:0:0]
	for _, r := range t.Runs {
		n := len(merged)
		if n > 0 && merged[n-1].Slots.Last+1 == r.Slots.First && sameState(merged[n-1], r) && !t.IsDuty(r.Slots.First) {
			merged[n-1].Slots.Last = r.Slots.Last
			continue
		}
		merged = append(merged, r)
	}
	t.Runs = merged
	wanted := map[uint64]bool{}
	for _, r := range t.Runs {
		if r.Unsettled {
			wanted[r.Epoch] = true
		}
	}
	for e := range t.Notes {
		if !wanted[e] {
			delete(t.Notes, e)
		}
	}
	if len(t.Gone) > 0 {
		settled := t.where(func(r Run) bool { return !r.Unsettled })
		t.Gone = slices.DeleteFunc(t.Gone, func(g Gone) bool { return settled.Has(g.Slot) })
	}
}

func sameState(a, b Run) bool {
	a.Slots, b.Slots = slot.Range{}, slot.Range{}
	return a == b
}
