package table_test

import (
	"fmt"
	"testing"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// placed is a table with a canary and pins.
func placed(t *testing.T, key slot.Key) *table.Table {
	t.Helper()
	tab := table.New(64, key, 1)
	for _, id := range []string{"a-1", "b-1", "c-1"} {
		m := table.Member{
			ID: id, Pod: id[:1], Build: "v7", Weight: 1, MinFormat: table.OldestFormat, MaxFormat: table.Format,
		}
		if id == "c-1" {
			m.Build, m.Labels = "v8", "pool=large,zone="
		}
		tab.Put(m)
	}
	tab.Canary = table.Canary{
		Build: "v8", Steps: []int{5, 20, 100}, Step: 1, Began: 70, Every: 600, Since: 60, By: "ada <ada@example.com>",
		Reason: "100 % sure", Verdict: "2 of 100",
	}
	pin := table.Pin{Object: "big/site", Labels: "pool=large", Since: 9, By: "ada", Reason: "so much in it"}
	if key == slot.KeyNamespace {
		tab.Canary.Namespaces, tab.Canary.Steps = []string{"a", "b"}, []int{0, 20}
		pin.Object = "big"
	}
	tab.PutPin(pin)
	tab.PutPin(table.Pin{Object: "alone", Labels: "pool=large,zone=b", Since: 9})
	tab.Seal(2)
	require.NoError(t, tab.Valid())
	return tab
}

func TestPlacesSurviveTheText(t *testing.T) {
	for _, key := range []slot.Key{slot.KeyName, slot.KeyNamespace} {
		want := placed(t, key)
		for i := range 70 { // with abbreviations, too
			text := table.Encode(want)
			if text["format"] != "5" {
				t.Fatalf("format %q, want 5", text["format"])
			}
			got, err := table.Decode(text)
			require.NoError(t, err)
			require.Equal(t, "canary", want.Canary, got.Canary)
			require.Equal(t, "pins", want.Pins, got.Pins)
			require.Equal(t, "members", want.Members, got.Members)
			size := 0
			for field, text := range text {
				size += len(field) + len(text)
			}
			if bound := want.Size(1 << 20); bound < size {
				t.Fatalf("Size is %d, and the text takes %d bytes", bound, size)
			}
			id := fmt.Sprintf("web-%03d-x", i)
			want.Put(table.Member{
				ID: id, Pod: id[:7], Weight: 1, MinFormat: table.OldestFormat, MaxFormat: table.Format, Labels: "n=" + id,
			})
		}
		want.DropOrders(table.PlaceFormat)
		want.Seal(3)
		if text := table.Encode(want); text["format"] != "1" || text["orders"]+text["pins"]+text["labels"] != "" {
			t.Errorf("without orders: %v", text)
		}
	}
}

func TestPlacesNeedMembersThatReadThem(t *testing.T) {
	tab := placed(t, slot.KeyName)
	tab.Members[0].MaxFormat = table.OrderFormat
	require.ErrorSays(t, tab.Valid(), "table format 5")
	for _, field := range []string{"orders", "pins", "labels"} {
		text := table.Encode(placed(t, slot.KeyName))
		kept := text[field]
		delete(text, "orders")
		delete(text, "pins")
		delete(text, "labels")
		text["format"], text[field] = "4", kept
		_, err := table.Decode(text)
		require.ErrorSays(t, err, "field "+field)
	}
}

// TestPinsOutliveMembers: a table without members has its pins in a format that every program reads, and may drop.
func TestPinsOutliveMembers(t *testing.T) {
	tab := placed(t, slot.KeyName)
	for _, id := range []string{"a-1", "b-1", "c-1"} {
		tab.Remove(id)
	}
	tab.Seal(3)
	text := table.Encode(tab)
	if text["format"] != "1" {
		t.Errorf("format %q, want 1", text["format"])
	}
	got, err := table.Decode(text)
	require.NoError(t, err)
	if got.Canary.On() || len(got.Pins) != 2 {
		t.Errorf("canary %+v, and %d pins; want none, and 2", got.Canary, len(got.Pins))
	}
}

func TestPlacesRefused(t *testing.T) {
	tab := func(change func(*table.Table)) func(*table.Table) { return change }
	canary := func(change func(*table.Canary)) func(*table.Table) {
		return func(t *table.Table) { change(&t.Canary) }
	}
	for want, change := range map[string]func(*table.Table){
		"it has no build":        canary(func(c *table.Canary) { c.Build = "" }),
		"one printable word":     canary(func(c *table.Canary) { c.Build = "v 8" }),
		"want Unix seconds":      canary(func(c *table.Canary) { c.Every = -1 }),
		"since 0":                canary(func(c *table.Canary) { c.Since = 0 }),
		"0 steps":                canary(func(c *table.Canary) { c.Steps = nil }),
		"step 3, of 3":           canary(func(c *table.Canary) { c.Step = 3 }),
		"step 1 has 0 %":         canary(func(c *table.Canary) { c.Steps = []int{0, 5} }),
		"step 2 has 101 %":       canary(func(c *table.Canary) { c.Steps = []int{5, 101} }),
		"step 2 has 5 %":         canary(func(c *table.Canary) { c.Steps = []int{5, 5} }),
		"need the key Namespace": canary(func(c *table.Canary) { c.Namespaces = []string{"a"} }),
		"verdict":                canary(func(c *table.Canary) { c.Verdict = "a  b" }),
		"asks for no label":      tab(func(t *table.Table) { t.Pins[0].Labels = "" }),
		"name=value":             tab(func(t *table.Table) { t.Pins[0].Labels = "large" }),
		"listed twice":           tab(func(t *table.Table) { t.Pins[0].Labels = "a=1,a=2" }),
		"want namespace/name":    tab(func(t *table.Table) { t.Pins[0].Object = "a/b/c" }),
		"not in order":           tab(func(t *table.Table) { t.Pins[0].Object = "x" }),
		"no pin asks":            tab(func(t *table.Table) { t.Pins = nil }),
		"by UID":                 tab(func(t *table.Table) { t.Key = slot.KeyUID }),
	} {
		one := placed(t, slot.KeyName)
		change(one)
		require.ErrorSays(t, one.Valid(), want)
	}
	text := table.Encode(placed(t, slot.KeyName))
	for _, lines := range []string{
		"canary v8 runs 5 0 0 0 - - 60", "canary v8 walks 5 0 0 0 - - 60 -", "canary v8 runs 5, 0 0 0 - - 60 -",
		text["orders"] + text["orders"], "canary v8 runs 5 x 0 0 - - 60 -", "canary v8 runs 5 0 0 0 - % 60 -",
	} {
		text := table.Encode(placed(t, slot.KeyName))
		text["orders"] = lines
		if _, err := table.Decode(text); err == nil {
			t.Errorf("orders %q: no error", lines)
		}
	}
	for field, lines := range map[string]string{"pins": "a b=c 0 -", "labels": "x a=1"} {
		text := table.Encode(placed(t, slot.KeyName))
		text[field] = lines
		_, err := table.Decode(text)
		require.ErrorSays(t, err, "field "+field)
	}
}

// TestCanarySlots: the slots of a share grow from step to step, and no step has more of them than it says, rounded up.
func TestCanarySlots(t *testing.T) {
	for build := range 50 {
		tab := table.New(64, slot.KeyName, 1)
		var last slot.Set
		for percent := 1; percent <= 100; percent++ {
			tab.Canary = table.Canary{Build: fmt.Sprint("v", build), Steps: []int{percent}}
			set := tab.CanarySlots()
			if lost := last.Minus(set); !lost.Empty() || set.Len() != (64*percent+99)/100 {
				t.Fatalf("%d %%: %d slots, without %v", percent, set.Len(), lost)
			}
			last = set
		}
		tab.Canary.State = table.CanaryBack
		if set := tab.CanarySlots(); !set.Empty() {
			t.Fatalf("it has gone back, and has slots %v", set)
		}
	}
	tab := table.New(64, slot.KeyNamespace, 1)
	tab.Canary = table.Canary{Build: "v8", Steps: []int{0}, Namespaces: []string{"a"}}
	want := slot.SetOf(slot.Range{First: tab.Slots.Of(slot.KeyNamespace.Hash("a", "some", "")), Last: tab.Slots.Of(slot.KeyNamespace.Hash("a", "some", ""))})
	if set := tab.CanarySlots(); set != want {
		t.Errorf("slots of a namespace: %v, want %v", set, want)
	}
}

func TestJoinedLabelsAreValid(t *testing.T) {
	for _, labels := range []map[string]string{
		{"pool": "x", "pool2": "y", "pool-a": "z"}, {"zone": "a", "zone-id": "b"}, {"a": "1", "a.b/c": "2"}, {}, {"a": ""},
	} {
		if err := table.ValidLabels(table.JoinLabels(labels)); err != nil {
			t.Errorf("%v: %v", labels, err)
		}
	}
}

func TestPinnedSlots(t *testing.T) {
	tab := table.New(1, slot.KeyName, 1)
	tab.PutPin(table.Pin{Object: "b/x", Labels: "n=2", Since: 1})
	tab.PutPin(table.Pin{Object: "a/x", Labels: "n=1", Since: 1})
	if by := tab.PinsBySlot(); by[0] != "n=1" {
		t.Errorf("of two pins in a slot %q counts, want n=1", by[0])
	}
	if tab.PutPin(table.Pin{Object: "b/x", Labels: "n=3", Since: 1}); len(tab.Pins) != 2 {
		t.Errorf("%d pins, want 2", len(tab.Pins))
	}
	if !tab.DropPin("a/x") || tab.DropPin("a/x") {
		t.Error("a pin is dropped once")
	}
	for labels, has := range map[string]bool{"n=3": true, "m=1,n=3": true, "n=33": false, "": false} {
		if got := table.HasLabels(labels, "n=3"); got != has {
			t.Errorf("HasLabels(%q, n=3) = %v", labels, got)
		}
	}
	for object, want := range map[string]slot.Slot{
		"a/x":  slot.Count(64).Of(slot.KeyName.Hash("a", "x", "")),
		"node": slot.Count(64).Of(slot.KeyName.Hash("", "node", "")),
	} {
		if got := table.New(64, slot.KeyName, 1).SlotOf(object); got != want {
			t.Errorf("slot of %s: %v, want %v", object, got, want)
		}
	}
}
