package orders_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/cli/orders"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// keyed is pair with another key, and without objects' names in it.
func keyed(key slot.Key) *table.Table {
	tab := pair()
	tab.Key = key
	return tab
}

func TestStartCanary(t *testing.T) {
	tab := keyed(slot.KeyNamespace)
	want := orders.Canary{Build: "v8", Namespaces: []string{"b", "a", "b"}, Steps: []int{0, 20, 100}, Every: time.Minute, Expect: true}
	require.NoError(t, orders.StartCanary(tab, want, by))
	tab.Seal(9)
	require.NoError(t, tab.Valid())
	got := table.Canary{
		Build: "v8", Namespaces: []string{"a", "b"}, Steps: []int{0, 20, 100}, Every: 60, Since: 1_763_712_000, By: "ada", Reason: "a look",
	}
	require.Equal(t, "the canary", got, tab.Canary)
	if canary, others := orders.Heaviest(tab); canary != 3 || others != 4 {
		t.Errorf("at last each has %d and %d slots, want 3 and 4", canary, others)
	}
	for text, c := range map[string]struct {
		change func(*table.Table)
		of     orders.Canary
	}{
		"no member has build v9: the builds are v7 (2)": {func(t *table.Table) { t.Canary = table.Canary{} }, orders.Canary{Build: "v9", Steps: []int{5}}},
		"there can only be one: promote or abort":       {func(*table.Table) {}, orders.Canary{Build: "v9", Steps: []int{5}, Expect: true}},
		"of build v8 is running already":                {func(t *table.Table) { t.Canary.Since = 5 }, orders.Canary{Build: "v8", Steps: []int{5}, Expect: true}},
		"all members have build v7":                     {func(t *table.Table) { t.Canary = table.Canary{} }, orders.Canary{Build: "v7", Steps: []int{5}}},
		"has no members":                                {func(t *table.Table) { t.Members = nil }, orders.Canary{Build: "v9", Steps: []int{5}}},
		"a namespace's objects are in all slots": {func(t *table.Table) { t.Canary, t.Key = table.Canary{}, slot.KeyName }, orders.Canary{
			Build: "v9", Namespaces: []string{"a"}, Expect: true,
		}},
		"does not support a canary or a pin: a-1": {func(t *table.Table) {
			t.Canary, t.Members[0].MaxFormat = table.Canary{}, table.OrderFormat
		}, orders.Canary{Build: "v9", Steps: []int{5}, Expect: true}},
	} {
		one := tab.Clone()
		c.change(one)
		require.ErrorSays(t, orders.StartCanary(one, c.of, by), text)
	}
	if err := orders.StartCanary(tab, want, by); !errors.Is(err, orders.ErrNoChange) {
		t.Errorf("the same order again: %v", err)
	}
	for _, state := range []table.CanaryState{table.CanaryBack, table.CanaryPromoted} {
		one := tab.Clone()
		one.Canary.State, one.Members[0].Build = state, "v8"
		if err := orders.StartCanary(one, orders.Canary{Build: "v9", Steps: []int{5}, Expect: true}, by); err == nil ||
			!strings.Contains(err.Error(), "the builds are v7 (1), v8 (1)") {
			t.Errorf("beside members of one that is %v: %v", state, err)
		}
	}
	tab.Canary.State = table.CanaryBack
	if err := orders.StartCanary(tab, orders.Canary{Build: "v9", Steps: []int{5}, Expect: true}, by); err != nil || tab.Canary.Build != "v9" {
		t.Errorf("after one that went back: %v, %+v", err, tab.Canary)
	}
}

func TestEndCanary(t *testing.T) {
	tab := pair()
	for _, do := range map[string]func(*table.Table) error{
		"promote": orders.PromoteCanary, "abort": func(t *table.Table) error { return orders.AbortCanary(t, by) },
	} {
		require.ErrorSays(t, do(tab), "there is no canary")
	}
	tab.Canary = table.Canary{Build: "v8", Steps: []int{5}, Since: 1}
	require.ErrorSays(t, orders.PromoteCanary(tab), "no member has the canary's build v8")
	awaited := tab.Clone()
	if err := orders.AbortCanary(awaited, by); err != nil || awaited.Canary.On() {
		t.Errorf("abort before it began: %v, %+v", err, awaited.Canary)
	}
	awaited.Canary = table.Canary{Build: "v8", State: table.CanaryBack, Steps: []int{5}, Since: 1, Began: 2}
	if err := orders.AbortCanary(awaited, by); err != nil || awaited.Canary.On() {
		t.Errorf("abort after its last member ended: %v, %+v", err, awaited.Canary)
	}
	tab.Members[0].Build, tab.Canary.Began = "v8", 2
	for _, step := range []struct {
		do    func(*table.Table) error
		state table.CanaryState
		text  string
		as    bool
	}{
		{func(t *table.Table) error { return orders.AbortCanary(t, by) }, table.CanaryBack, "asked by ada: a look", false},
		{func(t *table.Table) error { return orders.AbortCanary(t, by) }, table.CanaryBack, "asked by ada: a look", true},
		{orders.PromoteCanary, table.CanaryPromoted, "", false},
		{orders.PromoteCanary, table.CanaryPromoted, "", true},
		{func(t *table.Table) error { return orders.AbortCanary(t, orders.By{At: by.At}) }, table.CanaryBack, "asked", false},
	} {
		err := step.do(tab)
		if (err != nil) != step.as || tab.Canary.State != step.state || tab.Canary.Verdict != step.text || tab.Canary.Began != 2 {
			t.Errorf("error %v, and %+v; want %+v", err, tab.Canary, step)
		}
		tab.Seal(tab.Epoch + 1)
		require.NoError(t, tab.Valid())
	}
}

func TestPin(t *testing.T) {
	have := orders.Labels{"a-1": "pool=large,zone=a", "b-1": ""}
	pin := func(tab *table.Table, object, labels string, expect bool) error {
		return orders.Pin(tab, object, labels, have, expect, by)
	}
	tab := keyed(slot.KeyName)
	require.NoError(t, pin(tab, "team/site", "pool=large", false))
	if err := pin(tab, "team/site", "pool=large", false); !errors.Is(err, orders.ErrNoChange) {
		t.Errorf("again: %v", err)
	}
	tab.Seal(9)
	require.NoError(t, tab.Valid())
	if len(tab.UnmetPins()) != 1 { // the member has not announced its labels yet
		t.Error("the pin is met without labels")
	}
	tab.Members[0].Labels = have["a-1"]
	if unmet := tab.UnmetPins(); len(unmet) != 0 {
		t.Errorf("unmet: %v", unmet)
	}
	same := "" // another object of that slot
	for i := 0; same == ""; i++ {
		if name := "x/" + strings.Repeat("y", i); tab.SlotOf(name) == tab.SlotOf("team/site") && i > 0 {
			same = name
		}
	}
	for text, c := range map[string]struct {
		tab            *table.Table
		object, labels string
		expect         bool
	}{
		"no member has the labels pool=small: the members' labels are a-1: pool=large,zone=a; b-1: none": {tab, "team/other", "pool=small", false},
		"which is pinned to pool=large":      {tab, same, "zone=a", false},
		"a name does not determine the slot": {keyed(slot.KeyUID), "team/other", "pool=large", false},
		"pin team":                           {keyed(slot.KeyNamespace), "team/other", "pool=large", false},
		"slot 3 of team/other is the canary's": {func() *table.Table {
			tab := keyed(slot.KeyName)
			tab.Members[1].Build, tab.Canary = "v8", table.Canary{Build: "v8", Steps: []int{99}, Since: 1}
			return tab
		}(), "team/other", "pool=large", false},
		"is not an object": {tab, "a/b/c", "pool=large", false},
		"are drained or leaving: a-1": {func() *table.Table {
			tab := keyed(slot.KeyName)
			tab.PutDrain("a-1", 1, "", "")
			return tab
		}(), "team/other", "pool=large", false},
	} {
		require.ErrorSays(t, pin(c.tab.Clone(), c.object, c.labels, c.expect), text)
	}
	if err := pin(tab.Clone(), "team/other", "pool=small", true); err != nil {
		t.Errorf("expected: %v", err)
	}
	require.ErrorSays(t, orders.Unpin(tab, "team/other"), "the pins are team/site")
	if err := orders.Unpin(tab, "team/site"); err != nil || len(tab.Pins) > 0 {
		t.Errorf("unpin: %v", err)
	}
}
