package judge_test

import (
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/judge"
)

// TestExcuses: a slot on its way to a process that dies before it arrives is nobody's until the next one has it, as the
// slots that the process had are.
func TestExcuses(t *testing.T) {
	const s = time.Second
	version := func(at time.Duration, runs ...table.Run) judge.Version {
		tab := table.New(4, slot.KeyName, uint64(at))
		for _, m := range []string{"giver", "dead", "heir"} {
			tab.Put(table.Member{ID: m + "-id", Pod: m, Weight: 1, MinFormat: 1, MaxFormat: 1})
		}
		for i := range runs {
			runs[i].Slots, runs[i].Epoch = slot.Range{First: slot.Slot(i), Last: slot.Slot(i)}, 1
		}
		tab.Notes = map[uint64]table.Note{1: {Cause: table.CauseHanded}}
		tab.Runs = runs
		require.NoError(t, tab.Valid())
		return judge.Version{At: at, Table: tab}
	}
	owns := func(m string) table.Run { return table.Run{Owner: m + "-id"} }
	gets := func(m string) table.Run { return table.Run{Owner: m + "-id", Unsettled: true} }
	h := judge.History{
		version(1*s, owns("giver"), owns("dead"), owns("giver"), owns("heir")),
		version(10*s, table.Run{Owner: "giver-id", Next: "dead-id"}, owns("dead"), owns("giver"), owns("heir")),
		version(13*s, gets("dead"), owns("dead"), owns("giver"), owns("heir")), // killed after 12 s
		version(20*s, gets("heir"), gets("heir"), owns("giver"), owns("heir")),
		version(22*s, owns("heir"), owns("heir"), owns("giver"), owns("heir")),
	}
	c := h.CrashOf("dead", 12*s)
	for _, w := range []struct {
		what  string
		slot  slot.Slot
		at    time.Duration
		until time.Duration
		want  bool
	}{
		{"on its way, before it gave", 0, 9 * s, 0, false},
		{"on its way, while it drains", 0, 11 * s, 0, true},
		{"on its way, in dead hands", 0, 18 * s, 0, true},
		{"on its way, arrived", 0, 22 * s, 0, false},
		{"of the dead, long before", 1, 9 * s, 0, false},
		{"of the dead, just before", 1, 11 * s, 0, true},
		{"of the dead, before anybody has it", 1, 21 * s, 0, true},
		{"of the dead, arrived", 1, 23 * s, 0, false},
		{"of the living", 2, 15 * s, 0, false},
		{"taken over within the phase", 1, 15 * s, 21 * s, true},
		{"taken over after the phase", 1, 15 * s, 19 * s, false},
	} {
		if got := c.Excuses(h.Moves(), w.slot, w.at, w.until); got != w.want {
			t.Errorf("%s: %v, want %v", w.what, got, w.want)
		}
	}
}
