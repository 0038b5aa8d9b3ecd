package member_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/sim"
)

// handOver has two members share what one had, and returns the notes that the tables had meanwhile, and what was told.
func handOver(t *testing.T, o sim.Options) (notes []table.Note, told []string) {
	t.Helper()
	return handOverSeen(t, o, func(*table.Table) {})
}

// handOverSeen is handOver with a look at each table.
func handOverSeen(t *testing.T, o sim.Options, seen func(*table.Table)) (notes []table.Note, told []string) {
	t.Helper()
	w := sim.New(o)
	w.Start(&sim.Replica{Pod: "a", Weight: 1})
	w.Settle(time.Minute)
	w.Start(&sim.Replica{Pod: "b", Weight: 1})
	for range 30_000 {
		w.Run(time.Millisecond)
		if tab := w.Objects.Table().Table; tab != nil {
			seen(tab)
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

// largest returns the largest size of the table before b joins a, and from then on.
func largest(t *testing.T) (alone, both int) {
	t.Helper()
	w := sim.New(sim.Options{Slots: 64})
	run := func() (size int) {
		for range 30_000 {
			w.Run(time.Millisecond)
			if tab := w.Objects.Table().Table; tab != nil {
				size = max(size, tab.Size(1))
			}
		}
		return size
	}
	w.Start(&sim.Replica{Pod: "a", Weight: 1})
	alone = run()
	w.Start(&sim.Replica{Pod: "b", Weight: 1})
	return alone, run()
}

// A table that comes near to what a ConfigMap holds is told of before anything has to be left out, and once.
func TestR04LargeTablesAreToldOf(t *testing.T) {
	alone, both := largest(t)
	limit := both * 5 / 4
	if alone > limit/4*3 {
		t.Fatalf("%d bytes with one member and %d with two: there is no alarm in between", alone, both)
	}
	_, told := handOver(t, sim.Options{Slots: 64, Tune: func(c *member.Config) { c.MaxTable = limit }})
	large := 0
	for _, reason := range told {
		if reason == "TableLarge" {
			large++
		}
	}
	if large == 0 || large > 3 || slices.Contains(told, "TableCut") {
		t.Errorf("told: %v, want TableLarge, of each planner at most", told)
	}
	if _, told = handOver(t, sim.Options{Slots: 64}); slices.Contains(told, "TableLarge") {
		t.Errorf("told: %v, of a small table", told)
	}
}

// Where nothing helps, nothing is written, and that is told: the members there work on.
func TestR04TablesThatWouldBeInvalidAreNotWritten(t *testing.T) {
	alone, _ := largest(t)
	w := sim.New(sim.Options{Slots: 64, Tune: func(c *member.Config) { c.MaxTable = alone + 8 }})
	w.Start(&sim.Replica{Pod: "a", Weight: 1})
	w.Settle(time.Minute)
	w.Start(&sim.Replica{Pod: strings.Repeat("b", 60), Weight: 1})
	w.Run(30 * time.Second)
	tab := w.Objects.Table().Table
	if len(tab.Members) != 1 || tab.Counts()[w.Nodes[0].ID] != 64 {
		t.Errorf("members %v, slots %v, %v", tab.Members, tab.Counts(), w.Violations())
	}
	if !slices.Contains(w.Nodes[1].Notes, "InvalidTable") || slices.Contains(w.Nodes[0].Notes, "InvalidTable") {
		t.Errorf("told: %v by the member, %v by the one that cannot join", w.Nodes[0].Notes, w.Nodes[1].Notes)
	}
}

// Deletions that go with slots take up to an eighth of what a table may have. Slots whose deletions have no room beside
// those of others follow when these have settled; none is lost.
func TestR15DeletionsStayWithinTheirSize(t *testing.T) {
	const most = 32 << 10
	leaves := func(s slot.Slot) (gone []table.Gone) {
		for n := range 20 {
			gone = append(gone, table.Gone{Slot: s, Kind: "Website.example.com", Namespace: "default", Name: fmt.Sprintf("object-%d-of-slot-%d", n, s)})
		}
		return gone
	}
	named, largest := map[table.Gone]bool{}, 0
	_, told := handOverSeen(t, sim.Options{Slots: 64, LeavesGone: leaves, Tune: func(c *member.Config) { c.MaxTable = most }}, func(tab *table.Table) {
		largest = max(largest, table.GoneSize(tab.Gone))
		for _, g := range tab.Gone {
			named[g] = true
		}
	})
	if len(named) != 32*20 {
		t.Errorf("%d deletions were named in a table, want those of half of the slots, %d", len(named), 32*20)
	}
	if largest > most/8 || largest < most/16 {
		t.Errorf("they took up to %d bytes, want up to %d", largest, most/8)
	}
	if slices.Contains(told, "TableCut") {
		t.Error("something was left out")
	}
}
