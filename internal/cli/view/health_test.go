package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
)

// hangs and fails are what b reports of Website default/NAME: a reconcile that runs, and failures, the first so long ago.
func hangs(name string, d time.Duration) coverage.KeyHealth {
	return coverage.KeyHealth{Controller: "website", Kind: website, Slot: 157, Running: now.Add(-d),
		Object: types.NamespacedName{Namespace: "default", Name: name}}
}

func fails(name string, times int, d time.Duration) coverage.KeyHealth {
	return coverage.KeyHealth{Controller: "website", Kind: website, Slot: 157, Failures: times, Since: now.Add(-d),
		Last: now.Add(-5 * time.Second), Error: "denied", Object: types.NamespacedName{Namespace: "default", Name: name}}
}

// What members report of objects is a problem once that lasts, and names the object, how long, and why.
func TestObjectsThatGetNowhereAreProblems(t *testing.T) {
	panics := fails("blog", 12, 2*time.Minute)
	panics.Panics = 2
	for name, c := range map[string]struct {
		key     coverage.KeyHealth
		want    string // severity and kind; empty: none
		text    string
		blocked int // workers
	}{
		"hangs":          {hangs("blog", 6*time.Minute), "warning KeyHangs", "Website default/blog has been running for 6m0s, since ", 0},
		"hangs for ever": {hangs("blog", time.Hour), "error KeyHangs", "running for 1h0m0s", 0},
		"is slow":        {hangs("blog", 4*time.Minute), "", "", 0},
		"fails": {fails("blog", 12, 2*time.Minute), "warning KeyFails",
			"Website default/blog has failed 12 times in a row, since 2m0s, last 5s ago: denied (controller website)", 0},
		"panics":            {panics, "warning KeyFails", "12 times in a row (2 panics), since 2m0s", 0},
		"fails often, once": {fails("blog", 12, 30*time.Second), "", "", 0},
		"fails slowly":      {fails("blog", 3, 11*time.Minute), "warning KeyFails", "3 times in a row, since 11m0s", 0},
		"fails a little":    {fails("blog", 9, 2*time.Minute), "", "", 0},
		"hangs, as the only worker": {hangs("blog", time.Minute), "warning KeyHangs",
			"the only worker of controller website busy: 21 other objects wait for it, the oldest for 50s. With more", 1},
		"all workers hang": {hangs("blog", time.Minute), "warning KeyHangs", "keeps all 4 workers of controller website busy", 4},
	} {
		in := healthy(t)
		in.reports[1].Health = coverage.Health{Worst: []coverage.KeyHealth{c.key}}
		if c.blocked > 0 {
			in.reports[1].Blocked = []coverage.Blocked{{Controller: "another"},
				{Controller: "website", Workers: c.blocked, Waiting: 21, For: 50 * time.Second}}
		}
		var m memory
		r := m.look(in)
		if len(r.Worst) != 1 || r.Worst[0].Member != "b" || r.Worst[0].Object() != "Website default/blog" {
			t.Errorf("%s: worst %+v", name, r.Worst)
		}
		if c.want == "" {
			if len(r.Problems) > 0 {
				t.Errorf("%s: %+v", name, r.Problems)
			}
			continue
		}
		if len(r.Problems) != 1 {
			t.Fatalf("%s: %+v", name, r.Problems)
		}
		p := r.Problems[0]
		if got := fmt.Sprintf("%s %s", p.Severity, p.What); got != c.want || !strings.Contains(p.Message, c.text) ||
			p.Object != "Website default/blog" || p.Member != "b" || p.Slots != "157" {
			t.Errorf("%s: %+v, want %s that says %q", name, p, c.want, c.text)
		}
	}
}

// Of hundreds of objects, ten are named, and their number is told.
func TestManyObjectsThatFailAreSummedUp(t *testing.T) {
	in := healthy(t)
	for _, report := range in.reports {
		report.Health.Failing = 500
		for n := range 7 {
			report.Health.Worst = append(report.Health.Worst, fails(fmt.Sprint(report.Member, n), 20, time.Hour))
		}
	}
	var m memory
	r := m.look(in)
	if n := len(r.Problems); n != 11 {
		t.Fatalf("%d problems, want 11", n)
	}
	if last := r.Problems[10]; last.What != KeyFails || !strings.Contains(last.Message, "1000 objects have failed") {
		t.Errorf("%+v", last)
	}
}

// Who says of an object whose reconcile hangs or fails how it is, and nothing of others in its slot. Where there are more
// than members name, it says that this may be one of them.
func TestWhoSaysHowAnObjectIs(t *testing.T) {
	ask := func(h coverage.Health) *Who {
		q := sites(t)
		q.in.reports[1].Health = h
		return q.ask()
	}
	one := func(k coverage.KeyHealth) coverage.Health {
		return coverage.Health{Failing: 1, Worst: []coverage.KeyHealth{k}}
	}
	w := ask(one(fails("blog", 12, 2*time.Minute)))
	const want = "b works on Website default/blog; its reconcile by controller website has failed 12 times in a row, since " +
		"2m0s, last 5s ago: denied"
	if w.Works != WorksYes || w.Answer != want || len(w.Health) != 1 || len(w.Problems) != 1 {
		t.Errorf("%+v", w)
	}
	w = ask(one(fails("another", 12, 2*time.Minute)))
	if w.Answer != "b works on Website default/blog" || len(w.Health)+len(w.Problems)+len(w.Notes) > 0 {
		t.Errorf("another one fails: %+v", w)
	}
	h := one(fails("another", 12, 2*time.Minute))
	h.Failing = 9
	w = ask(h)
	if len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "8 objects that have failed") {
		t.Errorf("eight are not named: %+v", w)
	}
}
