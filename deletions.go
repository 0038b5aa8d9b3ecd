package rota

import (
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// hopeless reports whether all deletions in a slot belong to controllers whose informers have stopped.
func (o *objectHolder) hopeless(s slot.Slot) bool {
	share := o.rota.share
	return len(share.Ended()) > 0 && !slices.ContainsFunc(o.rota.registered(), func(c *Controller) bool {
		return !share.Stale(c.kind) && c.work.Waits(s)
	})
}

// heldByDeletions tells of deletions that keep some of the slots from moving on; "" if there are none.
func (o *objectHolder) heldByDeletions(set slot.Set) string {
	var held slot.Set
	var example string
	for _, s := range set.Slots() {
		if !o.rota.gate.AdmitsGone(s) {
			continue // nothing waits for them
		}
		for _, c := range o.rota.registered() {
			if key, found := c.work.Deletion(s); found {
				held.Add(s)
				example = fmt.Sprintf("%s of controller %s", key, c.name)
			}
		}
	}
	if held.Empty() {
		return ""
	}
	return fmt.Sprintf("slots %s cannot move on: deletions in them wait to be reconciled, or keep failing, such as %s; "+
		"other objects and slots are not held back", held, example)
}

// undone returns the deletions in a drained slot that the next owner will reconcile: those that fit into room. The
// others are logged.
func (o *objectHolder) undone(s slot.Slot, room int) []table.Gone {
	var out []table.Gone
	for _, c := range o.rota.registered() {
		fits := o.rota.fitting(s, c.name, c.work.Undone(s), room)
		room -= table.GoneSize(fits)
		out = append(out, fits...)
	}
	return out
}

// fitting returns those of the deletions in a slot for which there is room in the table, and tells of the others.
func (r *Rota) fitting(s slot.Slot, controller string, gone []table.Gone, room int) []table.Gone {
	fits, abandoned := work.Fit(gone, room)
	if n := len(abandoned); n > 0 {
		r.metrics.abandoned.Inc()
		r.log.Error(nil, "Slot given up although deletions in it could not be reconciled", "slot", s.String(),
			"controller", controller, "deletions", n, "first", work.NameOf(abandoned[0]).String())
	}
	return fits
}

// inherit enqueues deletions that the former owners of slots left, once the slots are open here.
func (o *objectHolder) inherit(gone []table.Gone) {
	for _, g := range gone {
		known := slices.Contains(o.rota.keeper.Kinds(), g.Kind)
		for _, c := range o.rota.registered() {
			if c.kind.String() == g.Kind {
				known = true
				c.work.Inherit(g)
			}
		}
		if known {
			o.rota.metrics.inherited.Inc()
			continue
		}
		o.rota.metrics.abandoned.Inc()
		o.rota.log.Error(nil,
			"A deletion that a former owner left is not reconciled: this member has no controller of that kind",
			"slot", g.Slot.String(), "kind", g.Kind, "object", work.NameOf(g).String())
	}
}
