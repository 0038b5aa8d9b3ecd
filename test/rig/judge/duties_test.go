package judge_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// withDuty adds a duty to the run of clean. a has it, and b after 10 s; it writes at least once a second by then, and
// from 12 s on.
func withDuty() *judge.Evidence {
	e := clean()
	for i, owner := range []string{"a", "b", "b"} {
		t := e.Audit.Tables[i].Table
		t.Duties = []string{"count"}
		t.Runs = append(t.Runs, table.Run{Slots: slot.Range{First: 2, Last: 2}, Owner: owner + "-id", Epoch: t.Epoch})
	}
	e.Audit.Tables[2].Table.Runs[2].Epoch = 200 // it was b's before
	e.Duties = judge.Duties{Names: []string{"count"}, Bound: seconds(4)}
	e.Duties.Runs = []journal.Reconcile{run("a.1", 100, 0, 1, 10.5), run("b.1", 200, 0, 11.9, 0)}
	for at := range 60 {
		switch {
		case at < 10:
			e.Audit.Others = append(e.Audit.Others, dutyWrite("a", 101+at, float64(at)))
		case at > 11:
			e.Audit.Others = append(e.Audit.Others, dutyWrite("b", 201+at, float64(at)))
		}
	}
	return e
}

func dutyWrite(pod string, number int, at float64) judge.Write {
	w := write(pod, "count", strconv.Itoa(number), at)
	w.Resource, w.Subresource, w.Site = "configmaps", "", judge.Site{}
	return w
}

// run is one of the duty, in which a controller's cache had that version; 0: it is a function.
func run(process string, epoch uint64, version int64, from, to float64) journal.Reconcile {
	r := reconcile(process, "count", version, from, to)
	r.Key.Namespace, r.Epoch = "duty", epoch
	return r
}

func TestDuties(t *testing.T) {
	add := func(w ...judge.Write) func(*judge.Evidence) {
		return func(e *judge.Evidence) { e.Audit.Others = append(e.Audit.Others, w...) }
	}
	runs := func(r ...journal.Reconcile) func(*judge.Evidence) {
		return func(e *judge.Evidence) { e.Duties.Runs = append(e.Duties.Runs, r...) }
	}
	// silent drops the writes of b before a time.
	silent := func(e *judge.Evidence, until float64) {
		kept := e.Audit.Others[:0]
		for _, w := range e.Audit.Others {
			if w.User == user("a") || !w.Done.Before(wall(until)) {
				kept = append(kept, w)
			}
		}
		e.Audit.Others = kept
	}
	usual := judge.DutyFigures{Runs: 2, Writes: 58, LongestGapMillis: 3000}
	for name, c := range map[string]struct {
		change func(*judge.Evidence)
		want   func(*judge.DutyFigures)
		fails  string
		// excused says that it is no failure where writes may be late.
		excused bool
	}{
		"nothing wrong": {change: func(*judge.Evidence) {}},
		"a late write": {
			change: add(dutyWrite("a", 300, 14)), fails: "1 late writes of duties", excused: true,
			want: func(f *judge.DutyFigures) { f.Writes, f.LateWrites, f.LatestMillis = 59, 1, 4000 },
		},
		"a late write that only the recording has": {
			change: func(e *judge.Evidence) {
				v := judge.Recorded{Site: named("count"), Number: "300", At: wall(14), Process: "a.1"}
				e.Duties.Versions = []judge.Recorded{v, {Site: named("count"), Number: "213", At: wall(12), Process: "b.1"}}
			},
			fails: "1 late writes of duties", excused: true,
			want: func(f *judge.DutyFigures) { f.Writes, f.LateWrites, f.LatestMillis = 59, 1, 4000 },
		},
		"a late write before the new owner begins": {
			change: add(dutyWrite("a", 210, 11)),
			want:   func(f *judge.DutyFigures) { f.Writes, f.LateWritesBetween, f.LatestMillis = 59, 1, 1000 },
		},
		"a write by one that never had the duty": {
			change: add(dutyWrite("c", 105, 4.5)), fails: "1 late writes of duties", excused: true,
			want: func(f *judge.DutyFigures) { f.Writes, f.LateWrites = 59, 1 },
		},
		"a write by somebody else": {change: func(e *judge.Evidence) {
			w := dutyWrite("a", 300, 14)
			w.User = "admin"
			add(w)(e)
		}},
		"a write of another ConfigMap": {change: func(e *judge.Evidence) {
			w := dutyWrite("a", 300, 14)
			w.Name = "other"
			add(w)(e)
		}},
		"a refusal": {
			change: func(e *judge.Evidence) { e.Audit.Refused = []judge.Write{dutyWrite("a", 300, 14)} },
			want:   func(f *judge.DutyFigures) { f.Refused = 1 },
		},
		"two that do it at once": {
			change: runs(run("a.1", 100, 0, 20, 21)), fails: "1 overlaps of duties",
			want: func(f *judge.DutyFigures) { f.Runs, f.Overlaps = 3, 1 },
		},
		"one that goes on when the next one begins": {
			change: func(e *judge.Evidence) { e.Duties.Runs[0].End = mono(11.95) }, fails: "1 overlaps of duties",
			want: func(f *judge.DutyFigures) { f.Overlaps = 1 },
		},
		"one that was stopped while the next one began": {
			change: func(e *judge.Evidence) {
				e.Duties.Runs[0].End = mono(14.1)
				e.Pauses = []judge.Pause{{Process: "a.1", From: mono(9.5), To: mono(14)}}
			},
			want: func(f *judge.DutyFigures) { f.PausedOverlaps = 1 },
		},
		"one that was killed": {change: func(e *judge.Evidence) {
			e.Duties.Runs[0].End = 0
			e.Ended = map[string]time.Duration{"a.1": mono(10)}
		}},
		"nobody does it for long": {
			change: func(e *judge.Evidence) { silent(e, 13.5) }, fails: "1 duties that nobody did for too long",
			want: func(f *judge.DutyFigures) { f.Writes, f.LongestGapMillis, f.Gaps = 56, 5000, 1 },
		},
		"the same, since there was no server": {
			change: func(e *judge.Evidence) { silent(e, 13.5); e.Reachable = mono(11) },
			want:   func(f *judge.DutyFigures) { f.Writes = 56 },
		},
		"nobody does it any more": {
			change: func(e *judge.Evidence) { silent(e, 99) }, fails: "1 duties that nobody did for too long",
			want: func(f *judge.DutyFigures) { f.Writes, f.LongestGapMillis, f.Gaps = 10, 51000, 1 },
		},
		"only one that is not the owner does it": {
			change: func(e *judge.Evidence) { silent(e, 99); add(dutyWrite("a", 300, 30))(e) }, excused: false,
			fails: "1 duties that nobody did for too long",
			want: func(f *judge.DutyFigures) {
				f.Writes, f.LateWrites, f.LatestMillis, f.LongestGapMillis, f.Gaps = 11, 1, 20000, 51000, 1
			},
		},
		"a controller that sees what was written": {
			change: runs(run("b.1", 200, 110, 20, 21)), want: func(f *judge.DutyFigures) { f.Runs = 3 },
		},
		"a controller that does not": {
			change: runs(run("b.1", 200, 109, 20, 21)), fails: "1 runs of duties that did not see",
			want: func(f *judge.DutyFigures) { f.Runs, f.Stale = 3, 1 },
		},
	} {
		e := withDuty()
		c.change(e)
		v := judge.Judge(e, user)
		want := usual
		if c.want != nil {
			c.want(&want)
		}
		if diff := cmp.Diff(want, v.Duties); diff != "" {
			t.Errorf("%s (-want +got):\n%s%s", name, diff, strings.Join(v.Examples, "\n"))
		}
		if rest := v.Figures; rest.LateWrites+rest.Overlaps+rest.Refused != 0 || rest.Operations != 4 {
			t.Errorf("%s: the figures of Websites are %+v", name, rest)
		}
		bad := strings.Join(v.Failures(false), "; ")
		if c.fails == "" && bad != "" || !strings.Contains(bad, c.fails) {
			t.Errorf("%s: failures %q, want %q", name, bad, c.fails)
		}
		if bad := v.Failures(true); (len(bad) > 0) != (c.fails != "" && !c.excused) {
			t.Errorf("%s: failures %q where writes may be late", name, bad)
		}
	}
}
