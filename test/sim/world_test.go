package sim

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// A check of the objects that finds nothing, whatever is wrong with them, would be none.
func TestLivesMissWhatIsBroken(t *testing.T) {
	for _, c := range []struct {
		name    string
		spoiled spoiled
		rules   []string
	}{
		{"lists of any version", spoiled{oldLists: true}, []string{"stale open", "not shown", "comes back"}},
		{"lists made before the fence wait", spoiled{oldVersions: true}, []string{"stale open", "not shown"}},
		{"keys that are not enqueued", spoiled{forgotten: true}, []string{"settle"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); seed < 200; seed++ {
				w := runChaos(seed, Options{}, c.spoiled)
				if !w.Failed() {
					continue
				}
				if got := w.Violations()[0]; !slices.Contains(c.rules, got.Rule) {
					t.Fatalf("seed %d: %v, want one of %v", seed, got, c.rules)
				}
				t.Logf("seed %d: %v", seed, w.Violations()[0])
				return
			}
			t.Error("not found")
		})
	}
}

// Clocks beyond the bound excuse two members at one gate, those within do not.
func TestClocksExcuse(t *testing.T) {
	for _, c := range []struct {
		clocks  clocks
		rule    string
		excused bool
	}{
		{clocks{0.93, 1.07}, "late write", false},
		{clocks{0.93, 1.07}, "two open", false},
		{clocks{0.8, 1.19}, "late write", true},
		{clocks{0.8, 1.19}, "two open", false},
		{clocks{0.5, 2}, "two open", true},
	} {
		w := New(Options{})
		w.clocks = c.clocks
		w.violateAtGate(c.rule, "")
		if w.Failed() == c.excused {
			t.Errorf("%v, %s: excused %v, want %v", c.clocks, c.rule, !w.Failed(), c.excused)
		}
	}
}

// Who writes over a table that cannot be read is found (rule R4).
func TestOverwritingIsFound(t *testing.T) {
	w := New(Options{})
	tab := table.New(16, slot.KeyName, 1)
	w.Put(tab)
	w.Objects.EditTable(func(text map[string]string) { text["format"] = strconv.Itoa(table.Format + 1) })
	w.Sync()
	s := w.Objects.Table()
	w.writer = &Node{ID: "a-1", cfg: member.Config{}}
	w.Objects.SwapTable(tab, s.UID, s.Version)
	w.Sync()
	if !w.Failed() || w.Violations()[0].Rule != "overwritten" {
		t.Error(w.Violations())
	}
}

// A watch that is cut goes on from its position at the other server, and lists anew where that is compacted.
func TestCutWatches(t *testing.T) {
	for _, compacted := range []bool{false, true} {
		w := New(Options{})
		n := w.Start(&Replica{Pod: "a", Container: "main", Weight: 1})
		w.Run(30 * time.Second)
		before := w.Objects.Table()
		if before.Table == nil || n.Link.tables.pos == 0 {
			t.Fatal("no table", n.Link.tables.pos)
		}
		listed := w.Messages.Listed
		n.Link.tables.cut()
		if compacted {
			w.Objects.EditTable(func(map[string]string) {}) // nobody's position yet
			w.compact()
		}
		w.Run(5 * time.Second)
		if got := w.Messages.Listed > listed; got != compacted {
			t.Errorf("compacted %v: listed anew %v", compacted, got)
		}
		if (w.Counts.Compacted > 0) != compacted {
			t.Errorf("compacted %v: %d watches met a 410", compacted, w.Counts.Compacted)
		}
	}
}

// What the fence wait of a restarted container's successor outlasts depends on clocks: with one that is fast enough, a last write
// of before commits later (docs/guarantees.md).
func TestFastClocksShortenTheFenceWait(t *testing.T) {
	for _, c := range []struct {
		rate float64
		late bool
	}{{1, false}, {1.07, false}, {1.45, true}} {
		w := New(Options{})
		w.clocks = clocks{c.rate, c.rate}
		pod := &Replica{Pod: "a", PodUID: "uid-a", Container: "main", Weight: 1}
		n := w.Start(pod)
		n.setRate(c.rate)
		w.Settle(time.Minute)
		if !n.Work.Fly(0) {
			t.Fatal("not admitted")
		}
		n.Work.Write(0, n.cfg.WriteTimeout, false)
		n.Crash()
		w.Start(pod).setRate(c.rate)
		w.Settle(time.Minute)
		if w.Failed() || (w.Counts.Excused > 0) != c.late {
			t.Errorf("clock rate %.2f: %d late writes, violations %v", c.rate, w.Counts.Excused, w.Violations())
		}
	}
}
