package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// docs/operations.md says what the events of orders mean.
func TestOrderEventsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{eventPaused, eventResumed, eventDrained, eventUndrained, eventRebalanced} {
		if !strings.Contains(string(text), "`"+reason+"`") {
			t.Errorf("docs/operations.md does not say what an event %s means", reason)
		}
	}
}

func TestShift(t *testing.T) {
	before := halves()
	before.Put(table.Member{ID: "web-2-c", Pod: "web-2", Weight: 1, MinFormat: 1, MaxFormat: table.DutyFormat, Duties: "backup"})
	before.Update(slot.SetOf(slot.Range{First: 256, Last: 256}), func(r *table.Run) { r.Owner, r.Epoch = "web-0-a", 41 })
	before.Update(slot.SetOf(slot.Range{First: 128, Last: 130}), func(r *table.Run) { r.Next = "web-2-c" })
	after := before.Clone()
	var some slot.Set
	some.AddRange(slot.Range{First: 0, Last: 9})
	some.AddRange(slot.Range{First: 20, Last: 20})
	some.AddRange(slot.Range{First: 256, Last: 256})
	after.Update(some, func(r *table.Run) { r.Next = "web-2-c" })
	want := shift{
		DryRun: true,
		Moves: []shiftMove{
			{Slots: "0-9 20", Count: 11, From: "web-0-a", To: "web-2-c"}, {Duty: "backup", Count: 1, From: "web-0-a", To: "web-2-c"},
		},
		Members: []shiftShare{
			{ID: "web-0-a", Slots: 128, After: 117, Duties: 1}, {ID: "web-1-b", Slots: 128, After: 125}, {ID: "web-2-c", After: 14, Later: 1},
		},
	}
	got := shiftOf(before, after, true)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var out strings.Builder
	printShift(&out, got)
	const text = `11 slots and 1 duty would move

MEMBER   SLOTS  AFTER  DUTIES  AFTER
web-0-a  128    117    1       0
web-1-b  128    125    0       0
web-2-c  0      14     0       1
`
	if diff := cmp.Diff(text, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A drained member that gave all it can may keep a duty that nobody else can do: the result names it.
func TestDrainEndsWithWhatStays(t *testing.T) {
	tab := halves()
	tab.Members[0].Duties = "backup"
	for i := range tab.Members {
		tab.Members[i].MaxFormat = table.Format
	}
	tab.Put(tab.Members[0])
	tab.Update(slot.Count(tab.Total()).All(), func(r *table.Run) { r.Owner = "web-1-b" })
	tab.Update(slot.SetOf(slot.Range{First: 256, Last: 256}), func(r *table.Run) { r.Owner = "web-0-a" })
	tab.PutDrain("web-0-a", 5, "", "")
	var out strings.Builder
	a := &actor{cmd: &cobra.Command{}}
	a.cmd.SetOut(&out)
	_, done, err := a.drainProgress(tab, "web-0-a")
	if !done || err != nil || !strings.Contains(out.String(), "nothing left to give; the member keeps what nobody else can do: duty backup") {
		t.Errorf("done %v, %v: %s", done, err, out.String())
	}
}
