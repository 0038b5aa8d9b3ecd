package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
)

// KeyHealth is an object whose reconcile hangs or fails, as its member reported it. Times are by the member's clock.
type KeyHealth struct {
	Member     string `json:"member"`
	Controller string `json:"controller"`
	// Kind is in the form "Website.web.example.com".
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Slot      int    `json:"slot"`
	// Running is when a reconcile that has run for a minute or more began, or nil.
	Running *time.Time `json:"runningSince,omitempty"`
	// Failures counts failures in a row, and Panics those that were panics. FailingSince is the first failure, LastFailure
	// the last. Error is the last error, cut to 200 bytes.
	Failures     int        `json:"failures,omitempty"`
	Panics       int        `json:"panics,omitempty"`
	FailingSince *time.Time `json:"failingSince,omitempty"`
	LastFailure  *time.Time `json:"lastFailure,omitempty"`
	Error        string     `json:"error,omitempty"`
	// Text is a summary in a sentence without a subject, such as "has failed 14 times in a row, for 5m0s".
	Text string `json:"text"`

	of coverage.KeyHealth
}

const (
	// A reconcile is a problem once it has run for hangingWarn, because some controllers wait for minutes. After
	// hangingError its object counts as one that no member works on.
	hangingWarn  = 5 * time.Minute
	hangingError = 30 * time.Minute
	// An object is a problem once it has failed failingOften times in a row over failingShort: with a backoff of
	// milliseconds many failures only take seconds, and backends may be down that long. For slow reconciles, FailingInRow
	// failures over failingLong are enough.
	failingOften = 10
	failingShort = time.Minute
	failingLong  = 10 * time.Minute
	// namedKeys limits the objects that are listed as problems, for each sort.
	namedKeys = 10
)

// worst returns the objects in the members' reports: hanging ones first, then failing ones.
func (r *Rota) worst(now time.Time) []KeyHealth {
	out := []KeyHealth{}
	for _, m := range r.Members {
		if report := r.Reports[m.ID]; report != nil {
			for _, k := range report.Health.Worst {
				out = append(out, keyHealth(m.ID, k, now))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b KeyHealth) int {
		switch {
		case a.of.Hangs() && b.of.Hangs():
			return a.of.Running.Compare(b.of.Running)
		case a.of.Hangs():
			return -1
		case b.of.Hangs():
			return 1
		default:
			return a.of.Since.Compare(b.of.Since)
		}
	})
	return out
}

func keyHealth(member string, k coverage.KeyHealth, now time.Time) KeyHealth {
	optional := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return ptr.To(t)
	}
	return KeyHealth{
		Member: member, Controller: k.Controller, Kind: k.Kind.String(), Namespace: k.Object.Namespace,
		Name: k.Object.Name, Slot: int(k.Slot), Running: optional(k.Running), Failures: k.Failures, Panics: k.Panics,
		FailingSince: optional(k.Since), LastFailure: optional(k.Last), Error: k.Error, Text: healthText(k, now), of: k,
	}
}

func healthText(k coverage.KeyHealth, now time.Time) string {
	since := func(t time.Time) string { return ago(max(0, now.Sub(t)).Seconds()) } // clocks differ a little
	var parts []string
	if k.Hangs() {
		parts = append(parts, fmt.Sprintf("has been running for %s, since %s", since(k.Running),
			k.Running.UTC().Format("15:04:05 MST")))
	}
	if k.Failures > 0 {
		text := fmt.Sprintf("has failed %s in a row", plural(k.Failures, "time"))
		if k.Hangs() {
			text = fmt.Sprintf("has failed %s before", plural(k.Failures, "time"))
		}
		if k.Panics > 0 {
			text += fmt.Sprintf(" (%s)", plural(k.Panics, "panic"))
		}
		text += fmt.Sprintf(", since %s, last %s ago", since(k.Since), since(k.Last))
		if k.Error != "" {
			text += ": " + k.Error
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; it ")
}

// Unwell reports whether something is wrong with the object itself.
func (w *Who) Unwell() bool {
	return len(w.Health) > 0 || slices.ContainsFunc(w.Problems, func(p Problem) bool { return p.Object != "" })
}

// healthText continues the answer's sentence.
func (w *Who) healthText() string {
	var out strings.Builder
	if slices.ContainsFunc(w.Problems, func(p Problem) bool { return p.What == KeyKills }) {
		out.WriteString(", and its reconciles may crash one process after another")
	}
	for _, k := range w.Health {
		fmt.Fprintf(&out, "; its reconcile by controller %s %s", k.Controller, k.Text)
	}
	return out.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Object formats the object for people, such as "Website default/blog".
func (k KeyHealth) Object() string {
	return subject{kind: k.of.Kind, namespace: k.Namespace, name: k.Name}.String()
}

// healthProblems returns the objects that make no progress.
func (r *Rota) healthProblems(now time.Time) []Problem {
	var hangs, fails []Problem
	for _, k := range r.Worst {
		p := Problem{Severity: Warn, Slots: strconv.Itoa(k.Slot), Member: k.Member, Object: k.Object()}
		text := fmt.Sprintf("%s %s (controller %s). ", k.Object(), k.Text, k.Controller)
		switch {
		case k.of.Hangs() && (now.Sub(k.of.Running) >= hangingWarn || r.blocked(k) != ""):
			if p.What = KeyHangs; now.Sub(k.of.Running) >= hangingError {
				p.Severity = Error
			}
			p.Message = text + cmp.Or(r.blocked(k), "It keeps a worker busy, and its slot cannot move") +
				". If reconciles do not take that long, delete that member's Pod, and give the reconciler timeouts"
			hangs = append(hangs, p)
		case failsForLong(k.of, now):
			p.What = KeyFails
			p.Message = text + "Other objects are not affected. Correct the object or what it depends on; see the member's log"
			fails = append(fails, p)
		}
	}
	hanging, failing := 0, 0
	for _, report := range r.Reports {
		hanging, failing = hanging+report.Health.Hanging, failing+report.Health.Failing
	}
	hangs = limited(hangs, hanging, "reconciles have been running for a minute or more")
	return append(hangs, limited(fails, failing, "objects have failed three times or more in a row")...)
}

// blocked returns a message if hanging reconciles keep all workers of the object's controller busy, or "".
func (r *Rota) blocked(k KeyHealth) string {
	for _, b := range r.Reports[k.Member].Blocked {
		if b.Controller != k.Controller {
			continue
		}
		workers := "It keeps the only worker"
		if b.Workers > 1 {
			workers = fmt.Sprintf("With others like it, it keeps all %d workers", b.Workers)
		}
		return fmt.Sprintf("%s of controller %s busy: %s for it, the oldest for %s. With more workers "+
			"(MaxConcurrentReconciles) they would continue", workers, k.Controller, waiting(b.Waiting), ago(b.For.Seconds()))
	}
	return ""
}

func waiting(n int) string {
	if n == 1 {
		return "1 other object waits"
	}
	return fmt.Sprintf("%d other objects wait", n)
}

func failsForLong(k coverage.KeyHealth, now time.Time) bool {
	d := now.Sub(k.Since)
	return k.Failures >= failingOften && d >= failingShort || k.Fails() && d >= failingLong
}

// limited returns the first problems, and one more with the total if there are others.
func limited(problems []Problem, all int, what string) []Problem {
	named := problems[:min(len(problems), namedKeys)]
	if len(named) == 0 || all <= len(named) {
		return named
	}
	rest := fmt.Sprintf("%d %s in total. `rota status -o wide` lists the worst of each member", all, what)
	return append(named, Problem{Severity: Warn, What: named[0].What, Message: rest})
}

// judgeHealth adds the health of an object's reconciles. Members only report the worst objects.
func (r *Rota) judgeHealth(w *Who) {
	report := r.Reports[w.Member]
	if report == nil {
		return
	}
	hanging, failing := report.Health.Hanging, report.Health.Failing
	for _, k := range r.Worst {
		if k.Member != w.Member {
			continue
		}
		if k.of.Hangs() {
			hanging--
		}
		if k.of.Fails() {
			failing--
		}
		if k.Kind == w.Kind && k.Namespace == w.Namespace && k.Name == w.Name {
			w.Health = append(w.Health, k)
		}
	}
	if len(w.Health) == 0 && hanging > 0 {
		w.note("%s reports %d reconciles that have been running for a minute or more without naming them: this object's may "+
			"be one of them", w.Member, hanging)
	}
	if len(w.Health) == 0 && failing > 0 {
		w.note("%s reports %d objects that have failed three times or more in a row without naming them: this may be one of "+
			"them", w.Member, failing)
	}
}
