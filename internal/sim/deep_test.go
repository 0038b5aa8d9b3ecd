package sim

import (
	"testing"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// A check of the objects that finds nothing, whatever is wrong with them, would be none.
func TestDeepLivesMissWhatIsBroken(t *testing.T) {
	for _, c := range []struct {
		name    string
		spoiled spoiled
		rule    string
	}{
		{"lists of any version", spoiled{oldLists: true}, "stale open"},
		{"keys that are not enqueued", spoiled{forgotten: true}, "settle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(DeepFrom); seed < DeepFrom+200; seed++ {
				w := runChaos(seed, 0, Options{}, c.spoiled)
				if !w.Failed() {
					continue
				}
				if got := w.Violations()[0]; got.Rule != c.rule {
					t.Fatalf("seed %d: %v, want %s", seed, got, c.rule)
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
	w.Objects.EditTable(func(text map[string]string) { text["format"] = "2" })
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
		w := New(Options{Wild: true, Deep: true, Idle: true})
		n := w.Start(&Replica{Pod: "a", Container: "main", Weight: 1})
		w.Run(30 * w.between(1e9, 1e9+1)) // 30 s: there is a table
		before := w.Objects.Table()
		if before.Table == nil || n.tables.pos == 0 {
			t.Fatal("no table", n.tables.pos)
		}
		listed := w.Messages.Listed
		n.tables.cut()
		if compacted {
			w.Objects.EditTable(func(map[string]string) {}) // nobody's position yet
			w.compact()
		}
		w.Run(5e9)
		if got := w.Messages.Listed > listed; got != compacted {
			t.Errorf("compacted %v: listed anew %v", compacted, got)
		}
		if (w.Counts.Compacted > 0) != compacted {
			t.Errorf("compacted %v: %d watches met a 410", compacted, w.Counts.Compacted)
		}
	}
}
