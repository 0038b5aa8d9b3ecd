package explore

import (
	"slices"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// goneIn are deletions, one in each of the slots.
func goneIn(mask uint8) (gone []table.Gone) {
	set := slotsOf(mask)
	for _, s := range set.Slots() {
		gone = append(gone, table.Gone{Slot: s, Kind: "Website", Name: "a"})
	}
	return gone
}

// checkGone looks at the deletions when a member changes the table. What a member knows that dies, or that finds nobody
// to take its slots, is lost.
func (w *world) checkGone(writer string, old, t *table.Table) {
	for s := range slot.Slot(w.x.total()) {
		in := func(t *table.Table) bool {
			return slices.ContainsFunc(t.Gone, func(g table.Gone) bool { return g.Slot == s })
		}
		was, is := old.At(s), t.At(s)
		named, owner := in(t), w.owes(is.Owner, s)
		switch {
		case named || is.Owner == "":
		case was.Owner == writer && is.Owner != writer && w.owes(writer, s):
			w.violate("deletion lost", "%s gives slot %d to %s without its deletion", writer, s, is.Owner)
		case in(old) && w.runs(is.Owner) && !owner:
			w.violate("deletion lost",
				"the table does not name the deletion in slot %d any more, and %s does not know of it", s, is.Owner)
		}
	}
}

// owes says that a running member knows of a deletion in a slot.
func (w *world) owes(id string, s slot.Slot) bool {
	for i := range w.x.Pods {
		if b := w.box(i); b.life == running && w.id(i) == id {
			return b.owed>>s&1 != 0
		}
	}
	return false
}

func (w *world) runs(id string) bool {
	for i := range w.x.Pods {
		if w.box(i).life == running && w.id(i) == id {
			return true
		}
	}
	return false
}
