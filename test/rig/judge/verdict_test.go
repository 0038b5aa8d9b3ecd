package judge_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// The run of these tests begins at 100 s by the monotonic clock and is over at 160 s. Times of the tests are seconds
// after its begin. Of two slots, "zero" lies in the first one and "one" in the second. a owns both; 10 s after the
// begin a is expelled and b gets them, and says 2 s later that it is active; it began to work on "one" at 11.5 s.

const begin = 100 * time.Second

func wall(at float64) time.Time { return epoch.Add(seconds(at)) }

func seconds(at float64) time.Duration { return time.Duration(at * float64(time.Second)) }

func mono(at float64) time.Duration { return begin + seconds(at) }

func keyOf(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "sites-9", Name: name}
}

func named(name string) judge.Site {
	return judge.Site{NamespacedName: keyOf(name), UID: "uid-" + name}
}

func user(pod string) string { return "sa/" + pod }

func tableOf(cause table.Cause, unsettled bool, owners ...string) *table.Table {
	t := table.New(2, slot.KeyName, 9)
	t.Notes = map[uint64]table.Note{5: {Cause: cause}}
	t.Runs = nil
	for i, owner := range owners {
		run := table.Run{Slots: slot.Range{First: slot.Slot(i), Last: slot.Slot(i)}}
		if owner != "" {
			t.Put(table.Member{ID: owner + "-id", Pod: owner, Weight: 1, MinFormat: 1, MaxFormat: 1})
			run.Owner, run.Epoch, run.Unsettled = owner+"-id", 5, unsettled
		}
		t.Runs = append(t.Runs, run)
	}
	return t
}

func version(number string, at float64, t *table.Table) judge.Version {
	t.Epoch, _ = strconv.ParseUint(number, 10, 64)
	t.Notes = map[uint64]table.Note{t.Epoch: t.Notes[5]}
	for i := range t.Runs {
		if t.Runs[i].Owner != "" {
			t.Runs[i].Epoch = t.Epoch
		}
	}
	return judge.Version{Version: number, User: user("b"), Received: wall(at - 0.01), Done: wall(at), Table: t}
}

func write(pod, name, number string, at float64) judge.Write {
	w := judge.Write{User: user(pod), Verb: "patch", Resource: "websites", Subresource: "status", Name: name, Site: named(name), Received: wall(at - 0.01), Done: wall(at), Object: &judge.Object{}}
	w.Object.Metadata.UID, w.Object.Metadata.ResourceVersion = "uid-"+name, number
	return w
}

func reconcile(process, name string, generation int64, from, to float64) journal.Reconcile {
	r := journal.Reconcile{Pod: process, Key: keyOf(name), UID: "uid-" + name, Generation: generation, Epoch: 5, Start: mono(from)}
	if to != 0 {
		r.End = mono(to)
	}
	return r
}

func update(name string, generation int64, at float64) judge.Update {
	return judge.Update{Key: keyOf(name), UID: "uid-" + name, Generation: generation, Commit: mono(at)}
}

// clean is a run in which nothing is wrong.
func clean() *judge.Evidence {
	census := judge.Census{
		Leases: []string{"chaos.b"}, Reports: []string{"chaos.b"}, Members: []string{"b"}, Live: []string{"b"},
		Goroutines: map[string]int{"b": 100}, Watches: map[string]int{"b": 3},
	}
	return &judge.Evidence{
		World: judge.World{Pod: func(user string) (string, bool) { return strings.CutPrefix(user, "sa/") }, Slots: 2, Key: slot.KeyName},
		PodOf: func(process string) string { pod, _, _ := strings.Cut(process, "."); return pod },
		Audit: &judge.Log{
			Tables: judge.History{
				version("100", -1, tableOf(table.CauseAssigned, false, "a", "a")),
				version("200", 10, tableOf(table.CauseExpelled, true, "b", "b")),
				version("300", 12, tableOf(table.CauseExpelled, false, "b", "b")),
			},
			Writes: []judge.Write{write("a", "one", "150", 5), write("b", "one", "350", 13)},
		},
		Reconciles: []journal.Reconcile{reconcile("a.1", "one", 2, 4, 5.1), reconcile("b.1", "one", 3, 11.5, 13.1)},
		Known:      map[string]bool{"uid-one": true},
		Updates:    []judge.Update{update("one", 2, 3.9), update("one", 3, 8)},
		Objects:    []judge.Final{{Site: named("one"), Generation: 3, Observed: 3}},
		Begin:      begin, BeginWall: epoch, End: mono(60), Bound: seconds(8), Before: census, After: census,
	}
}

func TestCleanRun(t *testing.T) {
	v := judge.Judge(clean(), user)
	want := judge.Verdict{Figures: judge.Figures{Operations: 4, Updates: 2, SlowestMillis: 3500}}
	require.Equal(t, "verdict", want, v)
	if bad := v.Failures(false); len(bad) > 0 {
		t.Errorf("failures %q", bad)
	}
}

func TestLateWrites(t *testing.T) {
	add := func(w ...judge.Write) func(*judge.Evidence) {
		return func(e *judge.Evidence) { e.Audit.Writes = append(e.Audit.Writes, w...) }
	}
	for name, c := range map[string]struct {
		change        func(*judge.Evidence)
		late, between int
		latest        float64
	}{
		"by the former owner when the new one works":      {change: add(write("a", "one", "360", 14)), late: 1, latest: 4000},
		"when it works, which the table does not say yet": {change: add(write("a", "one", "290", 11.9)), late: 1, latest: 1900},
		"before it works":                     {change: add(write("a", "one", "250", 11)), between: 1, latest: 1000},
		"in a slot in which nobody works yet": {change: add(write("a", "zero", "350", 14)), between: 1, latest: 4000},
		"twice":                               {change: add(write("a", "one", "360", 14), write("a", "one", "370", 15)), late: 2, latest: 5000},
		"of the version before the table's, answered after it":     {change: add(write("a", "one", "199", 10.1))},
		"by one that never had the slot":                           {change: add(write("c", "one", "151", 5)), late: 1},
		"by the next owner, before it is":                          {change: add(write("b", "one", "151", 5)), late: 1},
		"that changed nothing":                                     {change: add(write("a", "one", "350", 14))},
		"by somebody else":                                         {change: func(e *judge.Evidence) { w := write("a", "one", "360", 14); w.User = "admin"; add(w)(e) }},
		"that only the recording has":                              {change: recorded("a.1", "360", 14), late: 1, latest: 4000},
		"that both have":                                           {change: func(e *judge.Evidence) { recorded("a.1", "360", 14)(e); add(write("a", "one", "360", 14))(e) }, late: 1, latest: 4000},
		"a version of the recording by the owner":                  {change: recorded("b.1", "360", 14)},
		"a version of the recording that left the status alone":    {change: recorded("", "360", 14)},
		"by a member that got the slot back":                       {change: back(write("a", "one", "450", 21))},
		"by a member that got the slot back, before":               {change: back(write("a", "one", "380", 19)), late: 1, latest: 9000},
		"by the one who had it meanwhile, when another has got it": {change: back(write("b", "one", "450", 21)), between: 1, latest: 1000},
		"the same, and the one who has got it works":               {change: back(write("b", "one", "460", 23)), late: 1, latest: 3000},
		"the same, by a version of the table that only a watch showed": {
			change: func(e *judge.Evidence) { back(write("b", "one", "460", 23))(e); unlogged(e) }, late: 1, latest: 3000,
		},
		"by the one who got it by a version that only a watch showed": {
			change: func(e *judge.Evidence) { back(write("a", "one", "450", 21))(e); unlogged(e) },
		},
	} {
		e := clean()
		c.change(e)
		e.Audit.Sort()
		v := judge.Judge(e, user)
		if v.LateWrites != c.late || v.LateWritesBetween != c.between || v.LatestMillis != c.latest {
			t.Errorf("%s: %d late, %d between, the last after %v ms; want %d, %d, %v", name, v.LateWrites, v.LateWritesBetween, v.LatestMillis, c.late, c.between, c.latest)
		}
		if failed := len(v.Failures(false)) > 0; failed != (c.late > 0) || len(v.Failures(true)) > 0 {
			t.Errorf("%s: failures %q, and %q where writes may be late", name, v.Failures(false), v.Failures(true))
		}
		if (len(v.Examples) > 0) != (c.late+c.between > 0) {
			t.Errorf("%s: examples %q", name, v.Examples)
		}
	}
}

func recorded(process, number string, at float64) func(*judge.Evidence) {
	return func(e *judge.Evidence) {
		e.Versions = append(e.Versions, judge.Recorded{Site: named("one"), Number: number, At: wall(at), Process: process})
	}
}

// back gives the slots back to a after 20 s, which works there from 22 s on, and adds a write.
func back(w judge.Write) func(*judge.Evidence) {
	return func(e *judge.Evidence) {
		e.Audit.Tables = append(e.Audit.Tables, version("400", 20, tableOf(table.CauseHanded, true, "a", "a")))
		e.Reconciles = append(e.Reconciles, reconcile("a.2", "one", 3, 22, 22.1))
		e.Audit.Writes = append(e.Audit.Writes, w)
	}
}

// unlogged has the last version of the table seen by a watch, instead of in the audit log.
func unlogged(e *judge.Evidence) {
	last := len(e.Audit.Tables) - 1
	v := e.Audit.Tables[last]
	v.At, v.User, v.Received, v.Done = begin+v.Done.Sub(epoch), "", time.Time{}, time.Time{}
	e.Seen = slices.Concat(e.Audit.Tables[1:last], judge.History{v})
	e.Audit.Tables = e.Audit.Tables[:last]
}

func TestRefusals(t *testing.T) {
	e := clean()
	e.Audit.Refused = []judge.Write{write("a", "one", "", 14)}
	if v := judge.Judge(e, user); v.Refused != 1 || v.LateWrites != 0 || len(v.Failures(false)) > 0 {
		t.Errorf("%+v", v)
	}
}

func TestVerdictOnOverlaps(t *testing.T) {
	type figures struct {
		Free, Paused   int
		Longest, Awake float64
	}
	for name, c := range map[string]struct {
		change func(*judge.Evidence)
		want   figures
	}{
		"two at once": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("a.1", "one", 3, 12.1, 12.6))
		}, figures{Free: 1, Longest: 500, Awake: 500}},
		"two processes of one Pod": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("b.2", "one", 3, 13, 14))
		}, figures{Free: 1, Longest: 100, Awake: 100}},
		"another object": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("a.1", "zero", 3, 12.1, 12.6))
		}, figures{}},
		"of a process that was stopped": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("a.1", "one", 3, 9, 12.8))
			e.Pauses = []judge.Pause{{Process: "a.1", From: mono(9.5), To: mono(12.5)}}
		}, figures{Paused: 1, Longest: 1300, Awake: 300}},
		"of a process that was stopped at another time": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("a.1", "one", 3, 12.1, 12.6))
			e.Pauses = []judge.Pause{{Process: "a.1", From: mono(8), To: mono(12)}}
		}, figures{Free: 1, Longest: 500, Awake: 500}},
		"while a third one was stopped": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("a.1", "one", 3, 12.1, 12.6))
			e.Pauses = []judge.Pause{{Process: "c.1", From: mono(8), To: mono(20)}}
		}, figures{Free: 1, Longest: 500, Awake: 500}},
		"of one that was killed before": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("a.1", "one", 3, 9, 0))
			e.Ended = map[string]time.Duration{"a.1": mono(9.2)}
		}, figures{}},
		"of one that never ended": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("a.1", "one", 3, 9, 0))
		}, figures{Free: 1, Longest: 1600, Awake: 1600}},
		"before the run": {func(e *judge.Evidence) {
			e.Reconciles = append(e.Reconciles, reconcile("a.1", "zero", 3, -5, -3), reconcile("b.1", "zero", 3, -4, -3))
		}, figures{}},
	} {
		e := clean()
		c.change(e)
		v := judge.Judge(e, user)
		require.Equal(t, name, c.want, figures{v.Overlaps, v.PausedOverlaps, v.LongestMillis, v.AwakeMillis})
		if failed := len(v.Failures(true)) > 0; failed != (c.want.Free > 0) {
			t.Errorf("%s: failures %q", name, v.Failures(true))
		}
	}
}

func TestMisuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*judge.History)
		want   int
	}{
		"an epoch stays":            {change: func(h *judge.History) { (*h)[2].Table.Epoch = (*h)[1].Table.Epoch }, want: 1},
		"an epoch falls":            {change: func(h *judge.History) { (*h)[2].Table.Epoch--; (*h)[1].Table.Epoch += 150 }, want: 1},
		"of another table":          {change: func(h *judge.History) { (*h)[2].Table.Epoch, (*h)[2].Table.UID = 1, "other" }},
		"a slot keeps its epoch":    {change: func(h *judge.History) { (*h)[1].Table.Runs[1].Epoch = 100; (*h)[2].Table.Runs[1].Epoch = 100 }, want: 1},
		"with nobody in between":    {change: func(h *judge.History) { (*h)[1].Table.Runs[0] = table.Run{}; (*h)[2].Table.Runs[0].Epoch = 100 }, want: 1},
		"its owner gets it anew":    {change: func(h *judge.History) { (*h)[2].Table.Runs[0].Epoch = 900 }},
		"a lower epoch, same owner": {change: func(h *judge.History) { (*h)[2].Table.Runs[0].Epoch = 100 }},
	} {
		for _, lose := range []func(*judge.Evidence){func(*judge.Evidence) {}, unlogged} {
			e := clean()
			c.change(&e.Audit.Tables)
			lose(e)
			v := judge.Judge(e, user)
			if v.Misuses != c.want || len(v.Examples) != c.want || (len(v.Failures(true)) > 0) != (c.want > 0) {
				t.Errorf("%s: %d misuses, want %d: %q", name, v.Misuses, c.want, v.Examples)
			}
		}
	}
}

func TestOrphans(t *testing.T) {
	late := func(e *judge.Evidence) { e.Reconciles[1].Start, e.Reconciles[1].End = mono(17), mono(17.5) }
	for name, c := range map[string]struct {
		change  func(*judge.Evidence)
		orphans int
		slowest float64
	}{
		"a change that waited too long":                 {late, 1, 9000},
		"the same, in vain, since there was no server":  {func(e *judge.Evidence) { late(e); e.Reachable = mono(10) }, 0, 7000},
		"the same, and for too long after that":         {func(e *judge.Evidence) { late(e); e.Reachable = mono(8.5) }, 1, 8500},
		"a change that came after that":                 {func(e *judge.Evidence) { late(e); e.Reachable = mono(2) }, 1, 9000},
		"one that nobody ever saw":                      {func(e *judge.Evidence) { e.Updates = append(e.Updates, update("one", 4, 50)) }, 1, 10000},
		"one that nobody ever saw, of an object gone":   {func(e *judge.Evidence) { e.Updates = append(e.Updates, update("zero", 4, 50)) }, 0, 3500},
		"one whose reconcile saw what was there before": {func(e *judge.Evidence) { e.Reconciles[1].Generation = 2 }, 1, 52000},
	} {
		e := clean()
		c.change(e)
		if v := judge.Judge(e, user); v.Orphans != c.orphans || v.SlowestMillis != c.slowest || (len(v.Failures(true)) > 0) != (c.orphans > 0) {
			t.Errorf("%s: %d orphans, slowest %v ms, failures %q; want %d and %v", name, v.Orphans, v.SlowestMillis, v.Failures(true), c.orphans, c.slowest)
		}
	}
}

func TestLostUpdates(t *testing.T) {
	e := clean()
	e.Objects = append(e.Objects, judge.Final{Site: named("zero"), Generation: 3, Observed: 2})
	if v := judge.Judge(e, user); v.LostUpdates != 1 || len(v.Failures(true)) != 1 || len(v.Examples) != 1 {
		t.Errorf("%+v", v)
	}
}

func TestDeletions(t *testing.T) {
	gone := func(process string, from float64) journal.Reconcile {
		r := reconcile(process, "one", 0, from, from+0.1)
		r.UID = ""
		return r
	}
	handed := func(e *judge.Evidence) {
		for _, v := range e.Audit.Tables {
			v.Table.Notes[v.Table.Epoch] = table.Note{Cause: table.CauseHanded}
		}
	}
	for name, c := range map[string]struct {
		change func(*judge.Evidence)
		missed int
	}{
		"that nobody saw, when the slot was handed over": {handed, 1},
		"that somebody saw":                            {func(e *judge.Evidence) { handed(e); e.Reconciles = append(e.Reconciles, gone("a.1", 9.05)) }, 0},
		"that was seen before it was answered":         {func(e *judge.Evidence) { handed(e); e.Reconciles = append(e.Reconciles, gone("a.1", 8.95)) }, 0},
		"of which somebody saw an earlier one":         {func(e *judge.Evidence) { handed(e); e.Reconciles = append(e.Reconciles, gone("a.1", 8)) }, 1},
		"that nobody saw, when the owner was expelled": {func(*judge.Evidence) {}, 0},
		"the same, by a version that only a watch showed": {func(e *judge.Evidence) {
			handed(e)
			e.Audit.Tables[2] = version("300", 10, tableOf(table.CauseExpelled, true, "b", "b"))
			unlogged(e)
		}, 0},
		"that nobody saw, when nobody owned the slot": {func(e *judge.Evidence) {
			handed(e)
			e.Audit.Tables[1] = version("200", 10, tableOf(table.CauseHanded, false, "", ""))
		}, 0},
		"that nobody saw, of an object that nobody had seen": {func(e *judge.Evidence) {
			handed(e)
			e.Deletions[0].UID = "unseen"
		}, 0},
		"that nobody saw, although the slot stayed": {func(e *judge.Evidence) {
			e.Audit.Tables = e.Audit.Tables[:1]
			e.Audit.Writes = e.Audit.Writes[:1]
		}, 1},
	} {
		e := clean()
		e.Deletions = []judge.Deletion{{Site: named("one"), Begun: mono(8.9), Commit: mono(9)}}
		c.change(e)
		if v := judge.Judge(e, user); v.DeletionsMissed != c.missed || v.Deletions != 1 || (len(v.Failures(true)) > 0) != (c.missed > 0) {
			t.Errorf("%s: %d missed, failures %q; want %d", name, v.DeletionsMissed, v.Failures(true), c.missed)
		}
	}
}

func TestLeaks(t *testing.T) {
	for want, change := range map[string]func(*judge.Census){
		"2 Leases of 1 members":       func(c *judge.Census) { c.Leases = []string{"chaos.a", "chaos.b"} },
		"0 Leases of 1 members":       func(c *judge.Census) { c.Leases = nil },
		"0 reports of 1 members":      func(c *judge.Census) { c.Reports = nil },
		"2 reports of 1 members":      func(c *judge.Census) { c.Reports = []string{"chaos.a", "chaos.b"} },
		`members ["a" "b"]`:           func(c *judge.Census) { c.Members = []string{"b", "a"} },
		`members []`:                  func(c *judge.Census) { c.Members = nil },
		"b has 300 goroutines":        func(c *judge.Census) { c.Goroutines = map[string]int{"b": 300} },
		"c has 9 watches":             func(c *judge.Census) { c.Watches = map[string]int{"b": 3, "c": 9} },
		"at first no member had more": func(c *judge.Census) { c.Watches = map[string]int{"b": 20} },
	} {
		e := clean()
		change(&e.After)
		v := judge.Judge(e, user)
		if len(v.Leaks) != 1 || !strings.Contains(v.Leaks[0], want) || len(v.Failures(true)) != 1 {
			t.Errorf("leaks %q, failures %q; want %q", v.Leaks, v.Failures(true), want)
		}
	}
}

// With key UID a reconcile that found nothing is in no slot, and namesakes are two objects.
func TestKeyUID(t *testing.T) {
	e := clean()
	e.World.Key = slot.KeyUID
	for i := range e.Audit.Tables {
		e.Audit.Tables[i].Table.Key = slot.KeyUID
	}
	nothing := reconcile("a.1", "one", 0, 12, 12.5)
	nothing.UID = ""
	namesake := reconcile("a.1", "one", 1, 12, 12.5)
	namesake.UID = "another"
	e.Reconciles = append(e.Reconciles, nothing, namesake)
	if v := judge.Judge(e, user); v.Overlaps != 0 || len(v.Failures(false)) > 0 {
		t.Errorf("%+v", v)
	}
}
