package view

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// panicAt is the event of a process in a Pod, so long ago.
func panicAt(pod, object string, d time.Duration) Warning {
	return Warning{At: now.Add(-d), Member: pod, Reason: "ReconcilePanicked", Message: "controller web site panicked at " +
		object + " in slot 157. If that ends the process, the next owner will meet the object"}
}

// An object at which the second process has panicked and ended is named, and so is what it did. One panic, panics in a
// process that goes on, and those of long ago end nothing.
func TestObjectsThatEndProcesses(t *testing.T) {
	const blog = "Website.web.example.com default/blog"
	for name, c := range map[string]struct {
		warnings []Warning
		want     string // object; empty: no problem
	}{
		"two processes": {[]Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-d", blog, time.Minute)},
			"Website default/blog"},
		"one Pod, twice":  {[]Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-c", blog, time.Minute)}, "Website default/blog"},
		"cluster-scoped":  {[]Warning{panicAt("pod-c", "Node n1", 5*time.Minute), panicAt("pod-d", "Node n1", time.Minute)}, "Node n1"},
		"once":            {[]Warning{panicAt("pod-c", blog, time.Minute)}, ""},
		"it goes on":      {[]Warning{panicAt("pod-a", blog, 5*time.Minute), panicAt("pod-a", blog, time.Minute)}, ""},
		"one lives on":    {[]Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-a", blog, time.Minute)}, ""},
		"two objects":     {[]Warning{panicAt("pod-c", blog+"2", 5*time.Minute), panicAt("pod-d", blog, time.Minute)}, ""},
		"long ago":        {[]Warning{panicAt("pod-c", blog, 50*time.Minute), panicAt("pod-d", blog, 16*time.Minute)}, ""},
		"an earlier life": {[]Warning{panicAt("pod-a", blog, 90*time.Minute), panicAt("pod-c", blog, time.Minute)}, "Website default/blog"},
	} {
		in := healthy(t)
		in.warnings = c.warnings
		var m memory
		r := m.look(in)
		var got string
		if len(r.Problems) > 0 {
			p := r.Problems[0]
			got = p.Object
			if fmt.Sprint(p.Severity, p.What) != "errorKeyKills" || !strings.Contains(p.Message, "panicked at "+c.want+" 2 times") ||
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
	q.in.warnings = []Warning{panicAt("pod-c", blog, 5*time.Minute), panicAt("pod-d", blog, time.Minute)}
	w := q.ask()
	if !w.Unwell() || !strings.Contains(w.Answer, "its reconciles may end one process after the other") ||
		len(w.Problems) != 1 {
		t.Errorf("%+v", w)
	}
	q.in.warnings = []Warning{panicAt("pod-c", blog+"2", 5*time.Minute), panicAt("pod-d", blog+"2", time.Minute)}
	if w := q.ask(); w.Unwell() || len(w.Problems) > 0 {
		t.Errorf("of another object: %+v", w)
	}
}
