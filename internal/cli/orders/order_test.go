package orders_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/store/memory"
)

// pair is a table in which a-1 has all slots and both duties, and b-1 nothing. b-1 can do one duty.
func pair() *table.Table {
	tab := table.New(8, slot.KeyName, 3)
	for id, duties := range map[string]string{"a-1": "backup,janitor", "b-1": "backup"} {
		tab.Put(table.Member{
			ID: id, Pod: id[:1], Build: "v7", Weight: 1, MinFormat: table.OldestFormat, MaxFormat: table.Format, Duties: duties,
		})
	}
	tab.Update(slot.Count(tab.Total()).All(), func(r *table.Run) { r.Owner, r.Epoch = "a-1", 3 })
	tab.Seal(4)
	return tab
}

// stored is a store with that table, adopted.
func stored(t *testing.T, tab *table.Table) *memory.Store {
	t.Helper()
	m := memory.New()
	m.Do(func(o *memory.Objects) {
		s, _ := o.CreateTable(tab)
		tab = tab.Clone()
		tab.UID = s.UID
		o.SwapTable(tab, s.UID, s.Version)
	})
	return m
}

func nothing(context.Context) (map[string]uint64, error) { return nil, nil }

var by = orders.By{At: time.Unix(1_763_712_000, 0), User: "ada", Reason: "a  look"}

func pause(t *table.Table) error { return orders.Pause(t, by) }

func TestGive(t *testing.T) {
	m := stored(t, pair())
	for i, want := range []bool{true, false} {
		tab, changed, err := orders.Give(t.Context(), m.Client(nil), nothing, pause)
		if err != nil || changed != want || tab.Epoch != 5 {
			t.Fatalf("time %d: changed %v at epoch %d, %v", i, changed, tab.Epoch, err)
		}
		require.Equal(t, "the pause", table.Pause{Since: 1_763_712_000, By: "ada", Reason: "a look"}, tab.Pause)
	}
}

// Members write the table while somebody gives an order; answers are lost, before and after the write took effect.
func TestGiveAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault func(m *memory.Store, swaps int, after bool) error
		want  int // swaps
	}{
		"conflicts": {func(m *memory.Store, swaps int, after bool) error {
			if swaps <= 3 && !after {
				m.Do(func(o *memory.Objects) {
					s := o.Table()
					next := s.Table.Clone()
					next.Seal(next.Epoch + 1)
					o.SwapTable(next, s.UID, s.Version)
				})
			}
			return nil
		}, 4},
		"lost before": {func(_ *memory.Store, swaps int, after bool) error {
			if swaps == 1 && !after {
				return memory.ErrLost
			}
			return nil
		}, 2},
		"lost after": {func(_ *memory.Store, swaps int, after bool) error {
			if swaps == 1 && after {
				return memory.ErrLost
			}
			return nil
		}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, swaps := stored(t, pair()), 0
			client := m.Client(func(_ context.Context, op memory.Op, after bool) error {
				if op != memory.OpSwapTable {
					return nil
				}
				if !after {
					swaps++
				}
				return c.fault(m, swaps, after)
			})
			tab, changed, err := orders.Give(t.Context(), client, nothing, pause)
			if err != nil || !changed || !tab.Paused() || swaps != c.want {
				t.Errorf("%s: changed %v with %d swaps, want %d; %v", name, changed, swaps, c.want, err)
			}
			m.Do(func(o *memory.Objects) {
				if !o.Table().Table.Paused() {
					t.Errorf("%s: the table is not paused", name)
				}
			})
		})
	}
}

func TestGiveGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := stored(t, pair())
		client := m.Client(func(_ context.Context, op memory.Op, after bool) error {
			if op == memory.OpSwapTable && !after {
				m.Do(func(o *memory.Objects) {
					s := o.Table()
					next := s.Table.Clone()
					next.Seal(next.Epoch + 1)
					o.SwapTable(next, s.UID, s.Version)
				})
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, _, err := orders.Give(ctx, client, nothing, pause); !errors.Is(err, orders.ErrConflict) {
			t.Errorf("error %v, want %v", err, orders.ErrConflict)
		}
	})
}

func TestRefused(t *testing.T) {
	old := pair()
	old.Members[1].MaxFormat = table.DutyFormat
	empty := table.New(8, slot.KeyName, 3)
	newer, edited := stored(t, pair()), stored(t, pair())
	newer.Do(func(o *memory.Objects) { o.EditTable(func(text map[string]string) { text["format"] = "99" }) })
	edited.Do(func(o *memory.Objects) { o.EditTable(func(text map[string]string) { text["slots"] = "many" }) })
	for name, c := range map[string]struct {
		memory *memory.Store
		told   uint64
		change func(*table.Table) error
		want   string
	}{
		"no table":       {memory.New(), 0, pause, orders.ErrMissing.Error()},
		"an old copy":    {stored(t, pair()), 5, pause, orders.ErrOldCopy.Error()},
		"an old member":  {stored(t, old), 4, pause, "b-1 (build v7); update them first"},
		"a newer table":  {newer, 0, pause, view.ErrNewer.Error()},
		"edited by hand": {edited, 0, pause, "the table is invalid: field slots"},
		"no members":     {stored(t, empty), 0, pause, "has no members"},
		"a stranger":     {stored(t, pair()), 0, func(t *table.Table) error { return orders.Drain(t, "c-1", by) }, "the members are a-1, b-1"},
		"drained by one": {stored(t, old), 0, func(t *table.Table) error { return orders.Drain(t, "a-1", by) }, "older release"},
		"silent": {stored(t, pair()), 0, func(t *table.Table) error {
			return orders.Rebalance(t, by.At, []string{"b-1"}, nil)
		}, "b-1; they recover or are expelled within a lease"},
	} {
		told := func(ctx context.Context) (map[string]uint64, error) {
			s, err := c.memory.Client(nil).ReadTable(ctx)
			return map[string]uint64{s.UID: c.told}, err
		}
		if _, _, err := orders.Give(t.Context(), c.memory.Client(nil), told, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.want)
		}
	}
	copied := memory.New()
	copied.Do(func(o *memory.Objects) { o.CreateTable(pair()) })
	if _, _, err := orders.Give(t.Context(), copied.Client(nil), nothing, pause); !errors.Is(err, orders.ErrOldCopy) {
		t.Errorf("a table that nobody adopted: %v", err)
	}
}

func TestFind(t *testing.T) {
	tab := pair()
	tab.Put(table.Member{ID: "b-2", Pod: "b", Weight: 1, MinFormat: 1, MaxFormat: table.Format})
	for name, want := range map[string]string{
		"a-1": "a-1 <nil>", "a": "a-1 <nil>", "b-2": "b-2 <nil>",
		"b": " Pod b has several members, choose one: b-1, b-2",
		"c": " there is no member c: the members are a-1, b-1, b-2",
	} {
		m, err := orders.Find(tab, name)
		if got := fmt.Sprint(m.ID, " ", err); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestRestOf(t *testing.T) {
	tab := pair()
	want := orders.Rest{Slots: 8, Duties: 1, Only: []string{"janitor"}}
	require.Equal(t, "the rest", want, orders.RestOf(tab, "a-1"))
	require.NoError(t, orders.Drain(tab, "b-1", by))
	tab.Update(slot.SetOf(slot.Range{First: 2, Last: 3}), func(r *table.Run) { r.Next = "b-1" })
	if r := orders.RestOf(tab, "a-1"); !r.Alone || r.Done() {
		t.Errorf("the other is drained: %+v", r)
	}
	if r := orders.RestOf(tab, "b-1"); r.Coming != 2 || r.Done() {
		t.Errorf("two slots come: %+v", r)
	}
	if n := orders.Moving(tab); n != 2 {
		t.Errorf("%d move, want 2", n)
	}
	if r := orders.RestOf(tab, "gone"); !r.Done() {
		t.Errorf("one that is gone: %+v", r)
	}
}

func TestLongTexts(t *testing.T) {
	tab := pair()
	require.NoError(t, orders.Pause(tab, orders.By{At: by.At, User: strings.Repeat("ü", 200),
		Reason: strings.Repeat("x y\n", 200)}))
	tab.Seal(5)
	require.NoError(t, tab.Valid())
}

// A mark whose member was expelled waits for its container. It is found by that member's ID and by the Pod's name.
func TestUndrain(t *testing.T) {
	for name, want := range map[string]string{
		"a-1": "a-1", "a": "a-1", "b": "b-1: nothing to change", "b-1": "b-1: nothing to change",
		"c": ": there is no member c: the members are b-1",
	} {
		tab := pair()
		require.NoError(t, orders.Drain(tab, "a-1", by))
		tab.Lose("a-1", 5)
		tab.Remove("a-1")
		id, err := orders.Undrain(tab, name)
		got := id
		if err != nil {
			got = fmt.Sprint(id, ": ", err)
		}
		if got != want || tab.Drained("a-1") != (err != nil) {
			t.Errorf("undrain %s: %s, want %s; drained %+v", name, got, want, tab.Drains)
		}
	}
}
