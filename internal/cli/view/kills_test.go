package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
)

// panicAt is the event of a process in a Pod, so long ago. A Pod's second process is "pod-c 2".
func panicAt(process, object string, d time.Duration) Warning {
	pod, _, _ := strings.Cut(process, " ")
	return Warning{At: now.Add(-d), Member: pod, Reason: "ReconcilePanicked", Message: "controller web site panicked at " +
		object + " in slot 157. If that ends the process, the next owner will meet the object (process " +
		strings.ReplaceAll(process, " ", "-") + ")"}
}

// justGot has b work on its slots for so long.
func justGot(in *input, d time.Duration) {
	in.reports[1].Handovers = []coverage.Handover{{Epoch: 42, Slots: in.table.Owned("b"), Count: 128, Ended: now.Add(-d)}}
}

// An object at which the second process has panicked and ended is named, and so is what it did. One panic, several
// panics of one process, panics in a process that goes on or left in order, those of long ago, and those that the owner
// has outlived end nothing.
func TestObjectsThatEndProcesses(t *testing.T) {
	const blog = "Website.web.example.com default/blog"
	old := panicAt("pod-c", blog, time.Minute)
	old.Message, _, _ = strings.Cut(old.Message, " (process")
	two := []Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-d", blog, time.Minute)}
	for name, c := range map[string]struct {
		warnings []Warning
		change   func(*input)
		want     string // object; empty: no problem
	}{
		"two processes":         {warnings: two, want: "Website default/blog"},
		"one Pod, twice":        {warnings: []Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-c 2", blog, time.Minute)}, want: "Website default/blog"},
		"one process":           {warnings: []Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-c", blog, time.Minute)}},
		"one of an older build": {warnings: []Warning{old, old}},
		"cluster-scoped":        {warnings: []Warning{panicAt("pod-c", "Node n1", 5*time.Minute), panicAt("pod-d", "Node n1", time.Minute)}, want: "Node n1"},
		"once":                  {warnings: []Warning{panicAt("pod-c", blog, time.Minute)}},
		"it goes on":            {warnings: []Warning{panicAt("pod-a", blog, 5*time.Minute), panicAt("pod-a 2", blog, time.Minute)}},
		"one lives on":          {warnings: []Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-a", blog, time.Minute)}},
		"two objects":           {warnings: []Warning{panicAt("pod-c", blog+"2", 5*time.Minute), panicAt("pod-d", blog, time.Minute)}},
		"long ago":              {warnings: []Warning{panicAt("pod-c", blog, 50*time.Minute), panicAt("pod-d", blog, 16*time.Minute)}},
		"an earlier life":       {warnings: []Warning{panicAt("pod-a", blog, 90*time.Minute), panicAt("pod-c", blog, time.Minute)}, want: "Website default/blog"},
		"one joined anew": {warnings: two, change: func(in *input) {
			in.reports[0].Setup[coverage.SettingProcess] = "pod-d"
		}},
		"one that joined anew has survived it": {warnings: append([]Warning{panicAt("pod-e", blog, 2*time.Minute)}, two...),
			change: func(in *input) { in.reports[0].Setup[coverage.SettingProcess] = "pod-e" }},
		"one left in order": {warnings: two, change: func(in *input) {
			in.notices = []Warning{{At: now.Add(-time.Second), Member: "pod-d", Reason: "Leaving"}}
		}},
		"outlived": {warnings: two, change: func(in *input) { justGot(in, 5*time.Minute) }},
		"not for as long as the last one": {warnings: two, want: "Website default/blog",
			change: func(in *input) { justGot(in, 3*time.Minute) }},
		"its owner has not come to it": {warnings: two, want: "Website default/blog", change: func(in *input) {
			justGot(in, 5*time.Minute)
			in.reports[1].Waiting = map[slot.Slot]time.Duration{157: 4 * time.Minute}
		}},
	} {
		in := healthy(t)
		justGot(&in, 10*time.Second)
		in.warnings = c.warnings
		if c.change != nil {
			c.change(&in)
		}
		var m memory
		r := m.look(in)
		var got string
		if len(r.Problems) > 0 {
			p := r.Problems[0]
			got = p.Object
			if fmt.Sprint(p.Severity, p.What) != "errorKeyKills" || !strings.Contains(p.Message, "panicked on "+c.want+" in 2 processes") ||
				!strings.Contains(p.Message, "pod-c") {
				t.Errorf("%s: %+v", name, p)
			}
		}
		if got != c.want || len(r.Problems) > 1 {
			t.Errorf("%s: %+v, want %q", name, r.Problems, c.want)
		}
	}
}

func TestWhoNamesAnObjectThatEndsProcesses(t *testing.T) {
	const blog = "Website.web.example.com default/blog"
	q := sites(t)
	justGot(&q.in, 10*time.Second)
	q.in.warnings = []Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-d", blog, time.Minute)}
	w := q.ask()
	if !w.Unwell() || !strings.Contains(w.Answer, "its reconciles may crash one process after another") ||
		len(w.Problems) != 1 {
		t.Errorf("%+v", w)
	}
	q.in.warnings = []Warning{panicAt("pod-c", blog+"2", 5*time.Minute), panicAt("pod-d", blog+"2", time.Minute)}
	if w := q.ask(); w.Unwell() || len(w.Problems) > 0 {
		t.Errorf("of another object: %+v", w)
	}
}
