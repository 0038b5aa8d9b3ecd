package judge_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "sites", Name: name}
}

func TestOverlaps(t *testing.T) {
	run := func(pod, name string, start, end time.Duration) journal.Reconcile {
		return journal.Reconcile{Pod: pod, Key: key(name), Start: start, End: end}
	}
	uid := func(r journal.Reconcile, uid string) journal.Reconcile {
		r.UID = uid
		return r
	}
	for name, test := range map[string]struct {
		all   []journal.Reconcile
		ended map[string]time.Duration
		byUID bool
		want  int
	}{
		"one after the other":       {all: []journal.Reconcile{run("a", "x", 10, 20), run("b", "x", 20, 30)}},
		"another key":               {all: []journal.Reconcile{run("a", "x", 10, 20), run("b", "y", 15, 30)}},
		"the same process":          {all: []journal.Reconcile{run("a", "x", 10, 20), run("a", "x", 15, 30)}},
		"two at once":               {all: []journal.Reconcile{run("a", "x", 10, 20), run("b", "x", 19, 30)}, want: 1},
		"one within a long one":     {all: []journal.Reconcile{run("a", "x", 10, 90), run("a", "x", 95, 96), run("b", "x", 40, 50)}, want: 1},
		"three at once":             {all: []journal.Reconcile{run("a", "x", 10, 20), run("b", "x", 11, 20), run("c", "x", 12, 20)}, want: 3},
		"killed before":             {all: []journal.Reconcile{run("a", "x", 10, 0), run("b", "x", 30, 40)}, ended: map[string]time.Duration{"a": 25}},
		"killed too late":           {all: []journal.Reconcile{run("a", "x", 10, 0), run("b", "x", 30, 40)}, ended: map[string]time.Duration{"a": 35}, want: 1},
		"namesakes":                 {all: []journal.Reconcile{uid(run("a", "x", 10, 20), "1"), uid(run("b", "x", 15, 30), "2")}, byUID: true},
		"two at once, by UID":       {all: []journal.Reconcile{uid(run("a", "x", 10, 20), "1"), uid(run("b", "x", 15, 30), "1")}, byUID: true, want: 1},
		"one that is gone, by UID":  {all: []journal.Reconcile{run("a", "x", 10, 20), uid(run("b", "x", 15, 30), "1")}, byUID: true},
		"without an end, and alive": {all: []journal.Reconcile{run("a", "x", 10, 0), run("b", "x", 30, 40)}, want: 1},
	} {
		if got := judge.Overlaps(test.all, test.ended, test.byUID); len(got) != test.want {
			t.Errorf("%s: %d overlaps, want %d: %+v", name, len(got), test.want, got)
		}
	}
}

// history of two slots: a owns both; 1 moves to b by a handover; a dies, and b gets 0.
func history() judge.History {
	version := func(n string, at time.Duration, members string, runs ...table.Run) judge.Version {
		tab := table.New(2, slot.KeyName, uint64(at))
		tab.Notes = map[uint64]table.Note{1: {Cause: table.CauseHanded}}
		for _, m := range members {
			tab.Put(table.Member{ID: string(m) + "-id", Pod: string(m), Weight: 1, MinFormat: 1, MaxFormat: 1})
		}
		for i := range runs {
			if runs[i].Owner != "" {
				runs[i].Epoch = 1
			}
		}
		tab.Runs = runs
		if err := tab.Valid(); err != nil {
			panic(err)
		}
		done := epoch.Add(at * time.Second)
		return judge.Version{Version: n, At: at, Received: done.Add(-100 * time.Millisecond), Done: done, Table: tab}
	}
	r := func(s slot.Slot, owner, next string, unsettled bool) table.Run {
		return table.Run{Slots: slot.Range{First: s, Last: s}, Owner: owner, Next: next, Unsettled: unsettled}
	}
	return judge.History{
		version("100", 1, "", r(0, "", "", false), r(1, "", "", false)),
		version("110", 2, "a", r(0, "a-id", "", true), r(1, "a-id", "", true)),
		version("120", 3, "ab", r(0, "a-id", "", false), r(1, "a-id", "", false)),
		version("130", 4, "ab", r(0, "a-id", "", false), r(1, "a-id", "b-id", false)),
		version("140", 5, "ab", r(0, "a-id", "", false), r(1, "b-id", "", true)),
		version("150", 6, "ab", r(0, "a-id", "", false), r(1, "b-id", "", false)),
		version("160", 7, "b", r(0, "b-id", "", true), r(1, "b-id", "", false)),
		version("1000", 8, "b", r(0, "b-id", "", false), r(1, "b-id", "", false)),
	}
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestMoves(t *testing.T) {
	want := []judge.Move{
		{Slot: 0, To: "a", Planned: 1, Active: 3, Transfers: 1},
		{Slot: 1, To: "a", Planned: 1, Active: 3, Transfers: 1},
		{Slot: 1, From: "a", To: "b", Planned: 4, Active: 6, Transfers: 1},
		{Slot: 0, From: "a", To: "b", Planned: 7, Active: 8, Transfers: 1},
	}
	require.Equal(t, "moves", want, history().Moves())
}

func TestQuiet(t *testing.T) {
	h := history()
	if got := judge.Quiet(h[7].Table, []string{"b"}); got != "" {
		t.Errorf("the last version: %s", got)
	}
	for i, pods := range [][]string{{}, {"a"}, {"a", "b"}, {"a", "b"}, {"a", "b"}, {"b"}, {"b"}, {"a", "b"}} {
		if judge.Quiet(h[i].Table, pods) == "" {
			t.Errorf("version %d is quiet with %v", i, pods)
		}
	}
	if judge.Quiet(nil, nil) == "" {
		t.Error("no table is quiet")
	}
}

func TestLatencies(t *testing.T) {
	updates := []judge.Update{
		{Key: key("x"), UID: "1", Generation: 2, Commit: 10},
		{Key: key("x"), UID: "1", Generation: 3, Commit: 20},
		{Key: key("x"), UID: "1", Generation: 4, Commit: 60},
		{Key: key("y"), UID: "9", Generation: 2, Commit: 10},
	}
	all := []journal.Reconcile{
		{Key: key("x"), UID: "1", Generation: 3, Start: 50},
		{Key: key("x"), UID: "1", Generation: 1, Start: 5},
		{Key: key("x"), UID: "1", Generation: 4, Start: 59}, // faster than the response
		{Key: key("y"), UID: "8", Generation: 7, Start: 11}, // of a namesake
	}
	var got []time.Duration
	for _, l := range judge.Latencies(updates, all) {
		got = append(got, l.Waited)
	}
	require.Equal(t, "waited", []time.Duration{40, 30, 0}, got)
	waits := judge.Waits(judge.Latencies(updates, all), 5, func(l judge.Latency) bool { return l.Generation != 3 })
	require.Equal(t, "waits", []time.Duration{0, 35}, waits)
}

func TestQuantile(t *testing.T) {
	sorted := make([]time.Duration, 100)
	for i := range sorted {
		sorted[i] = time.Duration(i + 1)
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 1: 100} {
		if got := judge.Quantile(sorted, q); got != want {
			t.Errorf("quantile %v of 1 to 100 = %d, want %d", q, got, want)
		}
	}
	if got := judge.Quantile(nil, 0.99); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
