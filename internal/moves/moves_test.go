package moves

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// ms is a number of milliseconds.
func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// runsOf returns a table of 8 slots and a duty with these runs.
func runsOf(epoch uint64, notes map[uint64]table.Note, runs ...table.Run) *table.Table {
	return &table.Table{Epoch: epoch, Slots: 8, Duties: []string{"mail"}, Notes: notes, Runs: slices.Clone(runs)}
}

func rangeOf(first, last slot.Slot) slot.Range { return slot.Range{First: first, Last: last} }

func TestMovesAreMeasured(t *testing.T) {
	wall := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	m := New("b")
	handed := map[uint64]table.Note{3: {Cause: table.CauseHanded}}
	expelled := map[uint64]table.Note{5: {Cause: table.CauseExpelled}}
	stalls := func(want time.Duration, got []Landed, slots ...slot.Slot) {
		t.Helper()
		var names []slot.Slot
		for _, l := range got {
			if names = append(names, l.Slot); l.Stall != want {
				t.Errorf("slot %d was worked on by nobody for %v, want %v", l.Slot, l.Stall, want)
			}
		}
		if !cmp.Equal(names, slots) {
			t.Errorf("the member came to slots %v, want %v", names, slots)
		}
	}
	// a has all. 0-3 and 6 are to go to b.
	m.Seen(ms(0), runsOf(1, nil, table.Run{Slots: rangeOf(0, 8), Owner: "a", Epoch: 1}))
	planned := []table.Run{
		{Slots: rangeOf(0, 3), Owner: "a", Epoch: 1, Next: "b"}, {Slots: rangeOf(4, 5), Owner: "a", Epoch: 1},
		{Slots: rangeOf(6, 6), Owner: "a", Epoch: 1, Next: "b"}, {Slots: rangeOf(7, 8), Owner: "a", Epoch: 1},
	}
	m.Seen(ms(100), runsOf(2, nil, planned...))
	m.Warming(slot.SetOf(rangeOf(0, 3), rangeOf(6, 6)), 7)
	m.Warmed(ms(110), slot.SetOf(rangeOf(0, 3)), 6) // an answer to an earlier request
	m.Warmed(ms(130), slot.SetOf(rangeOf(0, 3)), 7)
	m.Warmed(ms(150), slot.SetOf(rangeOf(6, 6)), 7)
	planned[0] = table.Run{Slots: rangeOf(0, 3), Owner: "b", Epoch: 3, Unsettled: true}
	planned[2] = table.Run{Slots: rangeOf(6, 6), Owner: "b", Epoch: 3, Unsettled: true}
	m.Seen(ms(200), runsOf(3, handed, planned...))
	m.Seen(ms(201), runsOf(3, handed, planned...))
	stalls(ms(5), m.Opened(ms(205), wall, slot.SetOf(rangeOf(0, 3))), 0, 1, 2, 3)
	stalls(ms(20), m.Opened(ms(220), wall.Add(ms(15)), slot.SetOf(rangeOf(6, 6))), 6)
	stalls(0, m.Opened(ms(230), wall, slot.SetOf(rangeOf(0, 6)))) // it was open
	// Slot 4 goes to c, which never works on it, and is expelled; so is a, which has the duty.
	planned[1] = table.Run{Slots: rangeOf(4, 4), Owner: "c", Epoch: 4, Unsettled: true}
	rest := table.Run{Slots: rangeOf(5, 5), Owner: "a", Epoch: 1}
	four := []table.Run{planned[0], planned[1], rest, planned[2], planned[3]}
	m.Seen(ms(1000), runsOf(4, handed, four...))
	four[1] = table.Run{Slots: rangeOf(4, 4), Owner: "b", Epoch: 5, Unsettled: true}
	four[4] = table.Run{Slots: rangeOf(7, 7), Owner: "a", Epoch: 1}
	duty := table.Run{Slots: rangeOf(8, 8), Owner: "b", Epoch: 5, Unsettled: true}
	m.Seen(ms(3000), runsOf(5, expelled, append(four, duty)...))
	stalls(ms(5000), m.Opened(ms(6000), wall.Add(ms(6000)), slot.SetOf(rangeOf(4, 4))), 4)
	stalls(ms(3001), m.Opened(ms(6001), wall.Add(ms(6001)), slot.SetOf(rangeOf(8, 8))), 8)
	want := []coverage.Handover{
		{Duty: "mail", Count: 1, From: "a", Cause: table.CauseExpelled, Epoch: 5, Ended: wall.Add(ms(6001)), Activate: ms(3001)},
		{Slots: slot.SetOf(rangeOf(4, 4)), Count: 1, From: "c", Cause: table.CauseExpelled, Epoch: 5,
			Ended: wall.Add(ms(6000)), Activate: ms(3000)},
		{Slots: slot.SetOf(rangeOf(0, 3), rangeOf(6, 6)), Count: 5, From: "a", Cause: table.CauseHanded, Epoch: 3,
			Ended: wall.Add(ms(15)), Warm: ms(50), Drain: ms(70), Activate: ms(20)},
	}
	require.Equal(t, "handovers", want, m.Handovers(), cmp.AllowUnexported(slot.Set{}))
}

// Moves that are called off, or cut short by an expel, leave no wrong figures.
func TestMovesThatDoNotHappen(t *testing.T) {
	m := New("b")
	all := rangeOf(0, 8)
	coming := table.Run{Slots: all, Owner: "a", Epoch: 1, Next: "b"}
	m.Seen(ms(10), runsOf(1, nil, coming))
	m.Warming(slot.SetOf(all), 1)
	m.Seen(ms(20), runsOf(2, nil, table.Run{Slots: all, Owner: "a", Epoch: 1}))
	m.Warmed(ms(30), slot.SetOf(all), 1)
	m.Seen(ms(40), runsOf(3, nil, coming))
	m.Warming(slot.SetOf(all), 2)
	m.Warmed(ms(45), slot.SetOf(all), 1)
	note := map[uint64]table.Note{4: {Cause: table.CauseExpelled}}
	m.Seen(ms(60), runsOf(4, note, table.Run{Slots: all, Owner: "b", Epoch: 4, Unsettled: true}))
	m.Opened(ms(90), time.Time{}, slot.SetOf(rangeOf(0, 7)))
	got := m.Handovers()
	if len(got) != 1 || got[0].Warm != ms(20) || got[0].Drain != 0 || got[0].Activate != ms(30) {
		t.Errorf("%+v, want to have warmed from the second plan to the expel", got)
	}
	for n := range 3 * keptHandovers { // slots that come again and again
		epoch := uint64(10 + 2*n)
		m.Seen(ms(100), runsOf(epoch, nil, table.Run{Slots: all, Owner: "a", Epoch: epoch}))
		m.Seen(ms(100), runsOf(epoch+1, nil, table.Run{Slots: all, Owner: "b", Epoch: epoch + 1}))
		m.Opened(ms(101), time.Time{}, slot.SetOf(rangeOf(0, 7)))
	}
	if got := m.Handovers(); len(got) != keptHandovers || got[0].Epoch != 9+6*keptHandovers {
		t.Errorf("%d handovers are kept, the first of epoch %d", len(got), got[0].Epoch)
	}
}

// A member remembers what it drained until the table shows who has it.
func TestGivenSlotsAreMeasured(t *testing.T) {
	m := New("a")
	run := func(first, last slot.Slot, owner string, epoch uint64) table.Run {
		return table.Run{Slots: rangeOf(first, last), Owner: owner, Epoch: epoch}
	}
	seen := func(at int, epoch uint64, runs ...table.Run) (out []Given) {
		out = m.Seen(ms(at), runsOf(epoch, map[uint64]table.Note{epoch: {Cause: table.CauseHanded}}, runs...))
		slices.SortFunc(out, func(x, y Given) int { return int(x.slot) - int(y.slot) })
		return out
	}
	if got := seen(0, 1, run(0, 8, "a", 1)); got != nil {
		t.Errorf("at the start: %v", got)
	}
	m.Draining(ms(10), slot.SetOf(rangeOf(0, 5), rangeOf(8, 8)), 7)
	m.Drained(ms(20), slot.SetOf(rangeOf(0, 1), rangeOf(8, 8)), 7)
	m.Drained(ms(25), slot.SetOf(rangeOf(0, 0)), 7) // again
	m.Drained(ms(30), slot.SetOf(rangeOf(2, 2)), 6) // a drain that was called off
	if got := seen(35, 2, run(0, 8, "a", 1)); got != nil {
		t.Errorf("before the transfer: %v", got)
	}
	m.Opened(ms(40), time.Time{}, slot.SetOf(rangeOf(5, 5))) // the slot stays
	m.Drained(ms(45), slot.SetOf(rangeOf(5, 5)), 7)
	// 1 goes on to c at once; 2 was not drained when it was taken away; 3 and 4 are taken by nobody.
	got := seen(50, 4, run(0, 0, "b", 3), run(1, 1, "c", 4), run(2, 2, "b", 3), run(3, 4, "", 0), run(5, 7, "a", 1),
		run(8, 8, "b", 3))
	left := giving{round: 7, begun: ms(10), drained: ms(20), done: true}
	want := []Given{{left, 0, "b", "", 3}, {left, 1, "c", "", 4}, {left, 8, "b", "mail", 3}}
	require.Equal(t, "moves", want, got, cmp.AllowUnexported(Given{}, giving{}))
	if again := seen(60, 5, run(0, 8, "b", 5)); again != nil || len(m.giving) != 0 {
		t.Errorf("later: %v, and %v", again, m.giving)
	}
}
