package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/report"
)

// CanaryState says how far a canary is.
type CanaryState string

// States of a canary.
const (
	// Awaited: no member of its build is there.
	Awaited CanaryState = "Awaited"
	// Running: its build owns its slots, and is compared with the others.
	Running CanaryState = "Running"
	// Promoted: its build takes over.
	Promoted CanaryState = "Promoted"
	// WentBack: its slots went back to the others.
	WentBack CanaryState = "WentBack"
)

// Canary is a build that owns chosen slots only.
type Canary struct {
	Build string      `json:"build"`
	State CanaryState `json:"state"`
	// Steps are its shares of the slots in turn, in percent; 0 is that of its namespaces alone. Step is the present one,
	// from 0.
	Steps []int `json:"steps"`
	Step  int   `json:"step"`
	// Every is how long a step lasts at least, in seconds; 0: nothing goes on by itself. Began is when the step began;
	// nil: its members do not have its slots yet.
	Every float64    `json:"everySeconds"`
	Began *time.Time `json:"began,omitempty"`
	// Namespaces are those whose objects it has, besides its share.
	Namespaces []string `json:"namespaces,omitempty"`
	// Slots is how many slots are its, Owned how many of these its members own, once it is promoted or went back of all,
	// and Members how many members there are.
	Slots   int `json:"slots"`
	Owned   int `json:"owned"`
	Members int `json:"members"`
	// Judged is "good", "bad" or "not yet", of its reconciles beside the others' in this step. Text has the figures.
	Judged string `json:"judged,omitempty"`
	Text   string `json:"text,omitempty"`
	// Verdict says why it went back.
	Verdict string `json:"verdict,omitempty"`
	// Since, By and Reason are as in Pause.
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// StepTexts are the steps as people read them.
func (c *Canary) StepTexts() []string {
	out := make([]string, len(c.Steps))
	for i, percent := range c.Steps {
		out[i] = strconv.Itoa(percent) + " %"
		if percent == 0 {
			out[i] = "namespaces"
		}
	}
	return out
}

// Pin is an object that is to be with members of certain labels.
type Pin struct {
	// Object is "namespace/name", the name of an object without namespace, or a namespace. Slot is its slot, and Owner the
	// member that has it.
	Object string `json:"object"`
	Slot   int    `json:"slot"`
	Owner  string `json:"owner,omitempty"`
	// Labels are those that its member should have. Met: its member has them.
	Labels string `json:"labels"`
	Met    bool   `json:"met"`
	// Since, By and Reason are as in Pause.
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// canaryOf returns the canary of a table, or nil.
func canaryOf(t *table.Table, reports []*coverage.Report) *Canary {
	c := &t.Canary
	if !c.On() {
		return nil
	}
	set := t.CanarySlots()
	out := &Canary{
		Build: c.Build, Steps: c.Steps, Step: c.Step, Every: float64(c.Every), Namespaces: c.Namespaces, Slots: set.Len(),
		Verdict: c.Verdict, Since: time.Unix(c.Since, 0), By: c.By, Reason: c.Reason,
	}
	of := t.Slots.All() // that count: its own, while there are some
	if c.State == table.CanaryRuns {
		of = set
	}
	for _, m := range t.Members {
		if m.Build == c.Build {
			owned := t.Owned(m.ID).Intersect(of)
			out.Members, out.Owned = out.Members+1, out.Owned+owned.Len()
		}
	}
	if c.Began != 0 {
		out.Began = ptr.To(time.Unix(c.Began, 0))
	}
	switch {
	case c.State == table.CanaryPromoted:
		out.State = Promoted
	case c.State == table.CanaryBack:
		out.State = WentBack
	case out.Members == 0:
		out.State = Awaited
	case c.Began == 0:
		out.State = Running
	default:
		out.State = Running
		v := planner.Judge(t, report.Loads(reports))
		out.Judged, out.Text = "not yet", v.Text
		switch {
		case v.Bad:
			out.Judged = "bad"
		case v.Good:
			out.Judged = "good"
		}
	}
	return out
}

// pinsOf returns the pins of a table.
func pinsOf(t *table.Table) (out []Pin) {
	for _, p := range t.Pins {
		s := t.SlotOf(p.Object)
		owner, _ := t.Member(t.At(s).Owner)
		out = append(out, Pin{
			Object: p.Object, Slot: int(s), Owner: owner.ID, Labels: p.Labels, Met: table.HasLabels(owner.Labels, p.Labels),
			Since: time.Unix(p.Since, 0), By: p.By, Reason: p.Reason,
		})
	}
	return out
}

// CanaryCure says what to do about a canary that has gone back.
func CanaryCure(c *Canary) string {
	if c.Members == 0 {
		return "None of its members is left: `rota canary abort` ends it"
	}
	return fmt.Sprintf("Its members (%d) get nothing while there are others: take them away, and end it with `rota "+
		"canary abort`; if the build is good after all, `rota canary promote`", c.Members)
}

// drainLeft says what a drained member has yet.
func (r *Rota) drainLeft(m Member) string {
	switch {
	case m.Owned == 0 && m.Duties == 0:
		return ""
	case r.Pause != nil:
		return fmt.Sprintf(", and keeps %s and %d duties until moves go on", plural(m.Owned, "slot"), m.Duties)
	}
	return fmt.Sprintf(", and has %s and %d duties yet", plural(m.Owned, "slot"), m.Duties)
}

// orderProblems says where what people asked for is not so.
func (r *Rota) orderProblems() (out []Problem) {
	add := func(what, slots, message string, args ...any) {
		out = append(out, Problem{Severity: Warn, What: what, Slots: slots, Message: fmt.Sprintf(message, args...)})
	}
	if p := r.Pause; p != nil {
		add(MovesPaused, "", "moves are paused since %s%s. When that is over: rota resume -n %s %s",
			p.Since.UTC().Format(time.RFC3339), askedText(p.By, p.Reason), r.Namespace, r.Name)
	}
	for _, m := range r.Members {
		if d := m.Drain; d != nil {
			add(MemberDrained, "", "it was told to give up its slots since %s%s%s. When that is over: rota undrain -n %s %s %s",
				d.Since.UTC().Format(time.RFC3339), askedText(d.By, d.Reason), r.drainLeft(m), r.Namespace, m.ID, r.Name)
			out[len(out)-1].Member = m.ID
		}
	}
	if r.Table == nil {
		return out
	}
	for _, p := range r.Table.UnmetPins() {
		s := int(r.Table.SlotOf(p.Object))
		add(PinUnmet, SlotsText(Run{First: s, Last: s}), "%s is pinned to members that have the labels %s, and there is "+
			"none that is not drained: any member has the slot. Start one, or `rota unpin %s`", p.Object, p.Labels, p.Object)
	}
	switch c := r.Canary; {
	case c == nil:
	case c.State == WentBack && c.Members > 0:
		add(CanaryBack, "", "build %s went back to the others: %s. %s", c.Build, c.Verdict, CanaryCure(c))
	case c.State == Awaited:
		var later []string
		for _, m := range r.Members {
			if m.Joined.After(c.Since) && m.Build != c.Build && !slices.Contains(later, m.Build) {
				later = append(later, m.Build)
			}
		}
		if len(later) > 0 {
			add(CanaryWaits, "", "the canary is of build %s, of which no member has come, and members of build %s joined "+
				"since: if that is the one, `rota canary abort` and start it for that", c.Build, strings.Join(later, " and "))
		}
	}
	return out
}
