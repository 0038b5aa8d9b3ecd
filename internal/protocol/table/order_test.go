package table_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// ordered is a table with orders: a pause, and two of three members drained.
func ordered(t *testing.T) *table.Table {
	t.Helper()
	tab := table.New(8, slot.KeyName, 1)
	for _, id := range []string{"a-1", "b-1", "c-1"} {
		tab.Put(table.Member{
			ID: id, Pod: id[:1], PodUID: "uid-" + id[:1], Container: "main", Weight: 1,
			MinFormat: table.OldestFormat, MaxFormat: table.Format,
		})
	}
	tab.Pause = table.Pause{Since: 7, By: "ada <ada@example.com>", Reason: "100 % busy, see größe/1"}
	tab.PutDrain("b-1", 8, "ada", "")
	tab.PutDrain("a-1", 9, "", "bad node")
	tab.Seal(2)
	require.NoError(t, tab.Valid())
	return tab
}

func TestOrdersSurviveTheText(t *testing.T) {
	want := ordered(t)
	text := table.Encode(want)
	if text["format"] != "4" {
		t.Errorf("format %q, want 4", text["format"])
	}
	got, err := table.Decode(text)
	require.NoError(t, err)
	require.Equal(t, "the pause", want.Pause, got.Pause)
	require.Equal(t, "drains", want.Drains, got.Drains)
	size := 0
	for field, text := range text {
		size += len(field) + len(text)
	}
	if bound := want.Size(1 << 20); bound < size {
		t.Errorf("Size is %d, and the text takes %d bytes", bound, size)
	}
	got.DropOrders(table.OrderFormat)
	got.Seal(3)
	if text := table.Encode(got); text["format"] != "1" || text["orders"] != "" {
		t.Errorf("without orders: format %q, orders %q", text["format"], text["orders"])
	}
}

func TestOrdersNeedMembersThatReadThem(t *testing.T) {
	tab := ordered(t)
	tab.Members[2].MaxFormat = table.DutyFormat
	require.ErrorSays(t, tab.Valid(), "table format 4")
	if old := tab.NotReading(table.OrderFormat); len(old) != 1 || old[0].ID != "c-1" {
		t.Errorf("members that do not read of orders: %v", old)
	}
	text := table.Encode(ordered(t))
	text["format"] = "3"
	_, err := table.Decode(text)
	require.ErrorSays(t, err, "field orders")
	for _, lines := range []string{"pause", "pause x -", "pause 0 -", "pause 1 %", "pause 1 -\npause 2 -", "drain a-1 a u main 1 0",
		"drain a-1 a u main 1 x -", "drain b-1 b u main 1 0 -\ndrain a-1 a u main 1 0 -", "stop 1 -", "\n"} {
		text := table.Encode(ordered(t))
		text["orders"] = lines
		if _, err := table.Decode(text); err == nil {
			t.Errorf("orders %q: no error", lines)
		}
	}
}

func TestMarksFollowTheirContainer(t *testing.T) {
	marks := func(tab *table.Table) (ids []string) {
		for _, d := range tab.Drains {
			ids = append(ids, d.ID)
		}
		return ids
	}
	next := func(id, pod, uid string) table.Member {
		return table.Member{ID: id, Pod: pod, PodUID: uid, Container: "main", Weight: 1, MinFormat: 1, MaxFormat: table.Format}
	}
	for _, test := range []struct {
		name   string
		change func(*table.Table)
		want   []string
	}{
		{"it leaves", func(t *table.Table) { t.Remove("a-1") }, []string{"b-1"}},
		{"it is expelled", func(t *table.Table) { t.Lose("a-1", 5); t.Remove("a-1") }, []string{"a-1", "b-1"}},
		{"its container comes back", func(t *table.Table) {
			t.Lose("a-1", 5)
			t.Remove("a-1")
			t.Put(next("a-2", "a", "uid-a"))
			t.Inherit(next("a-2", "a", "uid-a"), nil)
		}, []string{"a-2", "b-1"}},
		{"its container comes back before it is expelled", func(t *table.Table) {
			t.Put(next("a-2", "a", "uid-a"))
			t.Inherit(next("a-2", "a", "uid-a"), nil)
		}, []string{"a-1", "a-2", "b-1"}},
		{"another Pod of its name comes", func(t *table.Table) {
			t.Remove("a-1")
			t.Put(next("a-2", "a", "uid-other"))
			t.Inherit(next("a-2", "a", "uid-other"), nil)
		}, []string{"b-1"}},
		{"its process joins again", func(t *table.Table) {
			t.Lose("a-1", 5)
			t.Remove("a-1")
			t.Put(next("x", "", ""))
			t.Inherit(next("x", "", ""), []string{"a-1"})
		}, []string{"b-1", "x"}},
		{"processes without names are strangers", func(t *table.Table) {
			t.Put(next("y", "", ""))
			t.PutDrain("y", 5, "", "")
			t.Put(next("z", "", ""))
			t.Inherit(next("z", "", ""), nil)
		}, []string{"a-1", "b-1", "y"}},
		{"all leave", func(t *table.Table) {
			for _, id := range []string{"a-1", "b-1", "c-1"} {
				t.Lose(id, 5)
				t.Remove(id)
			}
		}, nil},
	} {
		tab := ordered(t)
		test.change(tab)
		tab.Seal(tab.Epoch + 1)
		if err := tab.Valid(); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.want, marks(tab)); diff != "" {
			t.Errorf("%s: drained %s", test.name, diff)
		}
		if test.want == nil && tab.Paused() {
			t.Errorf("%s: still paused", test.name)
		}
	}
}

// Whoever undrains a member means its container: the marks of earlier processes, which died one after the other, go too.
func TestUndrainedIsTheContainer(t *testing.T) {
	next := func(id, uid, container string) table.Member {
		return table.Member{ID: id, Pod: "a", PodUID: uid, Container: container, Weight: 1, MinFormat: 1, MaxFormat: table.Format}
	}
	join := func(tab *table.Table, m table.Member) {
		tab.Put(m)
		tab.Inherit(m, nil)
	}
	tab := ordered(t)
	join(tab, next("a-2", "uid-a", "main")) // before a-1 is expelled
	tab.Lose("a-1", 5)
	tab.Remove("a-1")
	if !tab.Undrain("a-2") || tab.Undrain("a-2") {
		t.Error("undrained none, or twice")
	}
	tab.Lose("a-2", 9)
	tab.Remove("a-2")
	join(tab, next("a-3", "uid-a", "main"))
	if len(tab.Drains) != 1 || tab.Drained("a-3") || !tab.Drained("b-1") {
		t.Errorf("after the next restart: %+v", tab.Drains)
	}

	tab.PutDrain("a-3", 5, "", "")
	join(tab, next("a-4", "uid-a", "side")) // the Pod's other container
	tab.PutDrain("a-4", 5, "", "")
	if tab.Undrain("a-4"); !tab.Drained("a-3") {
		t.Error("the mark of another container went")
	}
	// Outside a cluster, processes of one machine look like one container. Those that live keep their own.
	for _, id := range []string{"x", "y", "z"} {
		tab.Put(next(id, "", ""))
		tab.PutDrain(id, 5, "", "")
	}
	tab.Lose("y", 9)
	tab.Remove("y")
	if tab.Undrain("z"); !tab.Drained("x") || tab.Drained("y") || tab.Drained("z") {
		t.Errorf("outside a cluster: %+v", tab.Drains)
	}
}
