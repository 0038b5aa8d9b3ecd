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

// CanaryState is the state of a canary.
type CanaryState string

// States of a canary.
const (
	// Awaited: no member of its build has joined yet.
	Awaited CanaryState = "Awaited"
	// Running: its members own the canary's slots, and are compared with the other builds.
	Running CanaryState = "Running"
	// Promoted: its build is replacing the others.
	Promoted CanaryState = "Promoted"
	// WentBack: the canary was rolled back.
	WentBack CanaryState = "WentBack"
)

// Canary is a build that only owns certain slots.
type Canary struct {
	Build string      `json:"build"`
	State CanaryState `json:"state"`
	// Steps are its shares of the slots in percent; 0 means only its namespaces. Step is the index of the current one.
	Steps []int `json:"steps"`
	Step  int   `json:"step"`
	// Every is the minimum duration of a step in seconds; 0 disables automatic steps. Began is when the step began, or nil
	// while its members do not own its slots yet.
	Every float64    `json:"everySeconds"`
	Began *time.Time `json:"began,omitempty"`
	// Namespaces are given to the canary in addition to its share.
	Namespaces []string `json:"namespaces,omitempty"`
	// Slots is the number of the canary's slots. Owned is how many of them its members own; once it is promoted or rolled
	// back, how many of all slots. Members is the number of its members.
	Slots   int `json:"slots"`
	Owned   int `json:"owned"`
	Members int `json:"members"`
	// Judged is "good", "bad" or "not yet": its reconciles in this step, compared with the others'. Text has the figures.
	Judged string `json:"judged,omitempty"`
	Text   string `json:"text,omitempty"`
	// Verdict explains why it was rolled back.
	Verdict string `json:"verdict,omitempty"`
	// Since, By and Reason are as in Pause.
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// StepTexts formats the steps for people.
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

// Pin keeps an object on members with certain labels.
type Pin struct {
	// Object is "namespace/name", the name of a cluster-scoped object, or a namespace. Owner is the member that owns its
	// slot.
	Object string `json:"object"`
	Slot   int    `json:"slot"`
	Owner  string `json:"owner,omitempty"`
	// Labels are the required labels. Met is true if the owner has them.
	Labels string `json:"labels"`
	Met    bool   `json:"met"`
	// Since, By and Reason are as in Pause.
	Since  time.Time `json:"since"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

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
	of := t.Slots.All() // or only the canary's, if it has any
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

// CanaryCure returns what to do about a canary that was rolled back.
func CanaryCure(c *Canary) string {
	if c.Members == 0 {
		return "It has no members left: `rota canary abort` ends it"
	}
	return fmt.Sprintf("Its members (%d) get no slots while there are others: remove them, and end it with `rota "+
		"canary abort`; if the build is good after all, `rota canary promote`", c.Members)
}

// drainLeft describes what a drained member still owns.
func (r *Rota) drainLeft(m Member) string {
	switch {
	case m.Owned == 0 && m.Duties == 0:
		return ""
	case r.Pause != nil:
		return fmt.Sprintf(", and keeps %s and %d duties until moves resume", plural(m.Owned, "slot"), m.Duties)
	}
	return fmt.Sprintf(", and still has %s and %d duties", plural(m.Owned, "slot"), m.Duties)
}

// orderProblems returns problems about orders in force: pauses, drains, pins and canaries.
func (r *Rota) orderProblems() (out []Problem) {
	add := func(what, slots, message string, args ...any) {
		out = append(out, Problem{Severity: Warn, What: what, Slots: slots, Message: fmt.Sprintf(message, args...)})
	}
	if p := r.Pause; p != nil {
		add(MovesPaused, "", "moves are paused since %s%s. When done: rota resume -n %s %s",
			p.Since.UTC().Format(time.RFC3339), byText(p.By, p.Reason), r.Namespace, r.Name)
	}
	for _, m := range r.Members {
		if d := m.Drain; d != nil {
			add(MemberDrained, "", "drained since %s%s%s. When done: rota undrain -n %s %s %s",
				d.Since.UTC().Format(time.RFC3339), byText(d.By, d.Reason), r.drainLeft(m), r.Namespace, m.ID, r.Name)
			out[len(out)-1].Member = m.ID
		}
	}
	if r.Table == nil {
		return out
	}
	for _, p := range r.Table.UnmetPins() {
		s := int(r.Table.SlotOf(p.Object))
		add(PinUnmet, SlotsText(Run{First: s, Last: s}), "%s is pinned to members with the labels %s, and all such "+
			"members are missing or drained: any member may own the slot. Start one, or `rota unpin %s`", p.Object, p.Labels,
			p.Object)
	}
	switch c := r.Canary; {
	case c == nil:
	case c.State == WentBack && c.Members > 0:
		add(CanaryBack, "", "build %s was rolled back: %s. %s", c.Build, c.Verdict, CanaryCure(c))
	case c.State == Awaited:
		var later []string
		for _, m := range r.Members {
			if m.Joined.After(c.Since) && m.Build != c.Build && !slices.Contains(later, m.Build) {
				later = append(later, m.Build)
			}
		}
		if len(later) > 0 {
			add(CanaryWaits, "", "no member of the canary's build %s has joined, but members of build %s have: if "+
				"that is the intended build, `rota canary abort` and start a canary for it", c.Build, strings.Join(later, " and "))
		}
	}
	return out
}
