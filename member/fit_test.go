package member_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/sim"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/table"
)

// handOver has two members share what one had, and returns the notes that the tables had meanwhile, and what was told.
func handOver(t *testing.T, o sim.Options) (notes []table.Note, told []string) {
	t.Helper()
	o.Idle = true
	w := sim.New(o)
	w.Start(&sim.Replica{Pod: "a", Weight: 1})
	w.Settle(time.Minute)
	w.Start(&sim.Replica{Pod: "b", Weight: 1})
	for range 30_000 {
		w.Run(time.Millisecond)
		if tab := w.Objects.Table().Table; tab != nil {
			for _, n := range tab.Notes {
				notes = append(notes, n)
			}
		}
	}
	w.Settle(time.Minute)
	if w.Failed() {
		t.Fatal(w.Violations())
	}
	for _, n := range w.Nodes {
		told = append(told, n.Notes...)
	}
	return notes, told
}

// A version that is no number, as those of some aggregated API servers, does not keep a slot from moving: its next
// owner lists the kind.
func TestR08OpaqueVersionsAreListed(t *testing.T) {
	notes, told := handOver(t, sim.Options{Slots: 8, Leaves: func() table.Versions {
		return table.Versions{"NetworkPolicy.projectcalico.org": "16354/", "Website": "17"}
	}})
	want := table.Versions{"NetworkPolicy.projectcalico.org": table.List, "Website": "17"}
	if !slices.ContainsFunc(notes, func(n table.Note) bool { return fmt.Sprint(n.Versions) == fmt.Sprint(want) }) {
		t.Errorf("no note with %v", want)
	}
	if slices.Contains(told, "TableCut") {
		t.Error("something was left out")
	}
}

// A kind that cannot stand in a note does not keep a slot from moving either: everything is listed.
func TestR08UnreadableKindsAreListed(t *testing.T) {
	notes, _ := handOver(t, sim.Options{Slots: 8, Leaves: func() table.Versions { return table.Versions{"not a kind": "17"} }})
	if slices.ContainsFunc(notes, func(n table.Note) bool { return n.Cause == table.CauseHanded }) {
		t.Error("a note says that slots were handed over, without the versions to be reached")
	}
}

// Many kinds make large notes. Where those are too large slots move without them, and are listed; the table stays
// within its size.
func TestR04TablesStayWithinTheirSize(t *testing.T) {
	many := table.Versions{}
	for i := range 200 {
		many["SomeKind"+strconv.Itoa(i)+".example.com"] = "1234567890"
	}
	_, told := handOver(t, sim.Options{
		Slots: 64, Leaves: func() table.Versions { return many },
		Tune: func(c *member.Config) { c.MaxTable = 16 << 10 },
	})
	if !slices.Contains(told, "TableCut") {
		t.Error("nothing was left out, so this says nothing")
	}
}
