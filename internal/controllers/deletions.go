package controllers

import (
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// hopeless reports whether all deletions in a slot belong to controllers whose informers have stopped.
func (o *objectHolder) hopeless(s slot.Slot) bool {
	share := o.env.Share
	return len(share.Ended()) > 0 && !slices.ContainsFunc(o.Controllers.All(), func(c *Controller) bool {
		return !share.Stale(c.Kind) && c.Work.Waits(s)
	})
}

// heldByDeletions describes the deletions that keep some of the slots from moving, or returns "".
func (o *objectHolder) heldByDeletions(set slot.Set) string {
	var held slot.Set
	var example string
	for _, s := range set.Slots() {
		if !o.env.Gate.AdmitsGone(s) {
			continue // no drain waits for them
		}
		for _, c := range o.Controllers.All() {
			if key, found := c.Work.Deletion(s); found {
				held.Add(s)
				example = fmt.Sprintf("%s of controller %s", key, c.Name)
			}
		}
	}
	if held.Empty() {
		return ""
	}
	return fmt.Sprintf("slots %s cannot move on: deletions in them wait to be reconciled, or keep failing, such as %s; "+
		"other objects and slots are not held back", held, example)
}

// Undone returns the deletions in a drained slot that the next owner will reconcile. Deletions that do not fit into
// room are logged.
func (o *objectHolder) Undone(s slot.Slot, room int) []table.Gone {
	var out []table.Gone
	for _, c := range o.Controllers.All() {
		fits := o.fitting(s, c.Name, c.Work.Undone(s), room)
		room -= table.GoneSize(fits)
		out = append(out, fits...)
	}
	return out
}

// fitting returns the deletions in a slot that fit into the table, and logs the others.
func (o *objectHolder) fitting(s slot.Slot, controller string, gone []table.Gone, room int) []table.Gone {
	fits, abandoned := work.Fit(gone, room)
	if n := len(abandoned); n > 0 {
		o.Abandoned()
		o.env.Log.Error(nil, "Slot given up although deletions in it could not be reconciled", "slot", s.String(),
			"controller", controller, "deletions", n, "first", work.NameOf(abandoned[0]).String())
	}
	return fits
}

// Inherit enqueues deletions that the slots' former owners left, once the slots are open here.
func (o *objectHolder) Inherit(gone []table.Gone) {
	for _, g := range gone {
		known := slices.Contains(o.Keeper.Kinds(), g.Kind)
		for _, c := range o.Controllers.All() {
			if c.Kind.String() == g.Kind {
				known = true
				c.Work.Inherit(g)
			}
		}
		if known {
			o.Inherited()
			continue
		}
		o.Abandoned()
		o.env.Log.Error(nil,
			"A deletion that a former owner left is not reconciled: this member has no controller of that kind",
			"slot", g.Slot.String(), "kind", g.Kind, "object", work.NameOf(g).String())
	}
}
