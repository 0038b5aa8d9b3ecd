package planner

import (
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
)

// This file advances a canary (rule R22): planners write each step into the table. The first planner compares the
// members' reports about it.

// canaryLoss is how long a canary's build may be without any member. A container is restarted, or a Pod replaced,
// within that time.
const canaryLoss = time.Minute

// canaryView is a planner's view of the canary.
type canaryView struct {
	// lost is since when the build, which had members, has had none. alone is since when the build, after it went back,
	// has been the only one. due is since when there has been a change to write. Each is 0 if that is not so.
	lost, alone, due time.Duration
	// asked is set while reports are being read, under this serial. next is when to read them again, or 0 if this member
	// does not read them.
	asked  bool
	serial uint64
	next   time.Duration
	// of is the canary, in the step that the verdict is about.
	of      table.Canary
	verdict trial.Verdict
}

// checkCanary requests the reports when they are due, while a canary runs and this member is the first planner.
func (p *proposer) checkCanary() {
	c := &p.canary
	of := &p.Table.Canary
	switch {
	case !of.Runs() || of.Began == 0 || p.Phase != Joined || p.Rank != 0:
		c.asked, c.next, c.of, c.verdict = false, 0, table.Canary{}, trial.Verdict{}
		return
	case c.next == 0:
		c.next = p.Now + p.LoadPeriod
	}
	if !c.asked && p.due(c.next) {
		c.asked, c.serial = true, p.read()
	}
}

// judge handles reports that were read for a canary.
func (p *proposer) judge(reports []LoadReport) {
	c, t := &p.canary, p.Table
	c.asked, c.next = false, p.Now+p.LoadPeriod
	if t != nil && t.Canary.On() {
		c.of, c.verdict = t.Canary, Judge(t, reports)
	}
}

// Judge compares the reconciles of the canary's members with the other members' in the current step.
func Judge(t *table.Table, reports []LoadReport) trial.Verdict {
	var canary, others trial.Side
	seen := map[string]bool{}
	for _, r := range reports {
		other, ok := t.Member(r.ID)
		of := r.Trial
		if !ok || of == nil || seen[r.ID] || of.Build != t.Canary.Build || of.Began != t.Canary.Began ||
			of.Step != t.Canary.Step || !of.Possible() {
			continue
		}
		seen[r.ID] = true
		if t.Apart(other) {
			canary = canary.Plus(of.Side)
		} else {
			others = others.Plus(of.Side)
		}
	}
	return trial.Compare(canary, others)
}

// advance takes the canary to its next step, or back, or ends it, if this member is a planner.
func (p *proposer) advance(d *draft) {
	c := &p.canary
	if p.Phase != Joined || p.Rank < 0 || !d.next.Canary.On() {
		c.lost, c.alone, c.due = 0, 0, 0
		return
	}
	next := p.nextCanary()
	if p.waited(&c.due, !next.Same(&p.Table.Canary), headStart(p.Rank, p.RetryPeriod)) {
		d.edit().Canary = next
		d.due = true
	}
}

// nextCanary returns the canary that the table should hold now. It has no build if the canary should end.
func (p *proposer) nextCanary() table.Canary {
	t := p.Table
	c, next := &p.canary, t.Canary
	of, others := 0, 0
	looping := ""
	for _, other := range t.Members {
		switch {
		case other.Build != next.Build:
			others++
		case !other.Leaving && !p.Dead(other.ID):
			of++
			if p.onProbation(other) {
				looping = other.ID
			}
		}
	}
	runs, promoted := next.State == table.CanaryRuns, next.State == table.CanaryPromoted
	begun := next.Began != 0 || next.Step > 0
	lost := p.waited(&c.lost, of == 0 && (runs && begun || promoted), canaryLoss)
	alone := p.waited(&c.alone, next.State == table.CanaryBack && others == 0 && of > 0, crashMemory)
	back := func(why string) { next.State, next.Verdict = table.CanaryBack, oneVerdict(why) }
	switch {
	case promoted && (lost || others == 0 && of > 0), alone:
		return table.Canary{}
	case !runs:
	case lost:
		back("no member of its build is left")
	case looping != "":
		back(fmt.Sprintf("its member %s crashes in a loop", looping))
	case next.Began == 0:
		if hasIts(t) {
			next.Began = p.Wall
		}
	case !c.of.Same(&next):
	case c.verdict.Bad:
		back(c.verdict.Text)
	case c.verdict.Good && next.Every > 0 && p.Wall-next.Began >= next.Every && !t.Paused() && hasIts(t):
		if next.Last() {
			next.State = table.CanaryPromoted
		} else {
			next.Step, next.Began = next.Step+1, 0
		}
	}
	return next
}

// hasIts reports whether members of the canary's build own all of its slots, and these have settled. A step can begin
// and end only then: otherwise it would measure slots of the step before.
func hasIts(t *table.Table) bool {
	mine := t.CanarySlots()
	for _, s := range mine.Slots() {
		if r := t.At(s); r.Owner == "" || r.Next != "" || r.Unsettled || !ofBuild(t, r.Owner) {
			return false
		}
	}
	return true
}

// oneVerdict returns a verdict in the form of the table's text.
func oneVerdict(text string) string {
	text = table.OneSpaced(text)
	return strings.TrimSpace(text[:min(len(text), table.MaxOrderText)])
}

// noticeCanary reports what a change of the table does to the canary.
func (p *proposer) noticeCanary(next *table.Table) {
	was, is := &p.Table.Canary, &next.Canary
	if !was.On() || is.Same(was) {
		return
	}
	verdict := ""
	if c := &p.canary; c.of.Same(was) && c.verdict.Text != "" {
		verdict = ": " + c.verdict.Text
	}
	switch {
	case !is.On() && was.State == table.CanaryPromoted && p.canary.lost != 0:
		p.notice("CanaryDone", true, "the last member of build %s, which was promoted, has left: others own its slots, and "+
			"a new member of it gets a share like any other", was.Build)
	case !is.On() && was.State != table.CanaryRuns && len(next.Members) > 0:
		p.notice("CanaryDone", false, "the canary of build %s is over: all members are of that build", was.Build)
	case !is.On():
	case is.State == table.CanaryBack:
		p.notice("CanaryBack", true, "the canary of build %s goes back to the other builds: %s", is.Build, is.Verdict)
	case is.State == table.CanaryPromoted:
		p.notice("CanaryPromoted", false, "build %s takes over: its canary is good%s", is.Build, verdict)
	case is.Step != was.Step:
		p.notice("CanarySteps", false, "the canary of build %s goes on, to %s%s", is.Build, canaryPart(next), verdict)
	case is.Step == 0:
		p.notice("CanaryBegins", false, "members of build %s have their slots: its canary begins, with %s", is.Build,
			canaryPart(next))
	}
}

// canaryPart describes the canary's current step.
func canaryPart(t *table.Table) string {
	set := t.CanarySlots()
	return fmt.Sprintf("%d of %d slots", set.Len(), t.Slots)
}
