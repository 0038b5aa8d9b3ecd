package planner_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

const rebalancedAt = 1_763_712_000

// uneven is a table in which web-0 has all slots, and web-1 and web-2 have none. web-2 is of a new build.
func uneven(t require.T) *table.Table {
	tab := table.New(16, slot.KeyName, 7)
	for i := range 3 {
		tab.Put(table.Member{
			ID: fmt.Sprintf("web-%d-a", i), Pod: fmt.Sprintf("web-%d", i), Build: fmt.Sprintf("v%d", 1+i/2), Weight: 1,
			MinFormat: table.OldestFormat, MaxFormat: table.Format, Joined: rebalancedAt - 20, Duties: "backup",
		})
	}
	tab.Update(slot.Count(tab.Total()).All(), func(r *table.Run) { r.Owner, r.Epoch = "web-0-a", 5 })
	tab.Seal(8)
	require.NoError(t, tab.Valid())
	return tab
}

func TestRebalance(t *testing.T) {
	next := func(t *table.Table) map[string]int {
		counts := map[string]int{}
		for s := range slot.Slot(t.Slots) {
			if r := t.At(s); r.Next != "" {
				counts[r.Next]++
			}
		}
		return counts
	}
	for _, test := range []struct {
		name   string
		change func(*table.Table)
		want   string
	}{
		{"a rollout", func(*table.Table) {}, "map[web-1-a:5 web-2-a:5]"},
		{"drained", func(t *table.Table) { t.PutDrain("web-1-a", 1, "", "") }, "map[web-2-a:8]"},
		{"the owner is drained", func(t *table.Table) { t.PutDrain("web-0-a", 1, "", "") }, "map[web-1-a:8 web-2-a:8]"},
		{"paused", func(t *table.Table) { t.Pause.Since = 1 }, "map[]"},
		{"on probation", func(t *table.Table) {
			t.Expels = []table.Expel{{Pod: "web-2", At: rebalancedAt - 40}, {Pod: "web-2", At: rebalancedAt - 30}}
		}, "map[web-1-a:8]"},
		{"they leave", func(t *table.Table) {
			m, _ := t.Member("web-0-a")
			m.Leaving = true
			t.Put(m)
		}, "map[]"},
		{"nobody has them", func(t *table.Table) {
			t.Update(t.Slots.All(), func(r *table.Run) { *r = table.Run{Slots: r.Slots, Epoch: r.Epoch} })
		}, "map[]"},
	} {
		tab := uneven(t)
		test.change(tab)
		tab.Seal(9)
		got, _ := planner.Rebalance(tab, rebalancedAt, nil)
		if err := got.Valid(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if moves := fmt.Sprint(next(got)); moves != test.want {
			t.Errorf("%s: moves to %s, want %s", test.name, moves, test.want)
		}
	}
}

// If all members report that they plan by load, so does Rebalance, and if some do, it does nothing. Slots whose owner
// does not speak of them count as others do.
func TestRebalanceByLoad(t *testing.T) {
	tab := uneven(t) // web-0-a has all 16 slots of hashes
	report := func(id string, byLoad bool, loads ...planner.Busy) planner.LoadReport {
		open := tab.Owned(id)
		return planner.LoadReport{ID: id, ByLoad: byLoad, Loads: loads, Open: open.Intersect(tab.Slots.All())}
	}
	hot := planner.Busy{Slots: slot.Range{First: 3, Last: 3}, Workers: 3000}
	for name, c := range map[string]struct {
		reports []planner.LoadReport
		fails   string
		hot     string // where slot 3 goes
	}{
		"by number":      {[]planner.LoadReport{report("web-0-a", false, hot), report("web-1-a", false), report("web-2-a", false)}, "", ""},
		"nobody reports": {nil, "", ""},
		"by load":        {[]planner.LoadReport{report("web-0-a", true, hot), report("web-1-a", true), report("web-2-a", true)}, "", "alone"},
		"one by number": {[]planner.LoadReport{report("web-0-a", true, hot), report("web-1-a", false), report("web-2-a", true)},
			"member web-1-a does not", ""},
		"one has not reported": {[]planner.LoadReport{report("web-0-a", true, hot), report("web-1-a", true)}, "member web-2-a does not", ""},
	} {
		got, err := planner.Rebalance(tab, rebalancedAt, c.reports)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) || got != tab {
				t.Errorf("%s: error %v, want %q", name, err, c.fails)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		with := map[string]int{}
		for s := range slot.Slot(tab.Slots) {
			with[cmp.Or(got.At(s).Next, got.At(s).Owner)]++
		}
		beside := with[cmp.Or(got.At(3).Next, got.At(3).Owner)]
		if (beside < 5) != (c.hot == "alone") {
			t.Errorf("%s: the member with the hot slot has %d of %d slots: %v", name, beside, tab.Slots, with)
		}
	}
}

// Rebalance begins moves and does nothing else, and then has nothing more to begin.
func TestRebalanceOnlyBeginsMoves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tab := uneven(rt)
		ids := []string{"", "web-0-a", "web-1-a", "web-2-a"}
		for s := range slot.Slot(tab.Total()) {
			owner := rapid.SampledFrom(ids).Draw(rt, "owner")
			next := rapid.SampledFrom(ids).Draw(rt, "next")
			var one slot.Set
			one.Add(s)
			tab.Update(one, func(r *table.Run) {
				*r = table.Run{Slots: r.Slots, Owner: owner, Epoch: 5}
				if owner != "" && next != owner {
					r.Next = next
				}
			})
		}
		tab.Seal(9)
		require.NoError(rt, tab.Valid())
		got, _ := planner.Rebalance(tab, rebalancedAt, nil)
		require.NoError(rt, got.Valid())
		for s := range slot.Slot(tab.Total()) {
			was, is := tab.At(s), got.At(s)
			begun := was
			begun.Next = is.Next
			begun.Slots, is.Slots = slot.Range{}, slot.Range{}
			if is != begun || is.Next != was.Next && (was.Next != "" || was.Owner == "") {
				rt.Fatalf("slot %v: %+v became %+v", s, was, is)
			}
		}
		if again, _ := planner.Rebalance(got, rebalancedAt, nil); again != got {
			rt.Fatalf("it is not even yet:\n%v\n%v", got, again)
		}
	})
}
