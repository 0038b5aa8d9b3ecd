package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	// settleLimit is how long after the load's end everything may take to be reconciled.
	settleLimit = 30 * time.Second
	// examples is how many of what must not happen are printed.
	examples = 5
)

// finish judges the run, once the load has ended.
func (s *Show) finish(ctx context.Context) (*Report, error) {
	s.view.log("the load has ended; checking")
	history, err := s.follow.History()
	if err != nil {
		return nil, err
	}
	rec := &judge.Records{World: s.world(), History: history, Moves: history.Moves()}
	r := &Report{
		Migrated: s.migrates, Members: len(s.fleet.Live()), Slots: int(s.o.Slots), Rate: s.o.Rate, Delivery: s.o.Delivery,
	}
	updates, deletions := s.load.Take()
	if err := s.settle(ctx, r); err != nil {
		return nil, err
	}
	if !s.migrates {
		if err := s.judgeLeftovers(ctx, r, deletions, rec); err != nil {
			return nil, err
		}
		s.judgeOwners(r)
	}
	if c := s.load.Counts(); c.Failures > 0 {
		s.view.log("%s of the load failed, the last one: %v", verdict.Count(c.Failures, "request", "requests"), c.Err)
	}
	s.view.log("stopping the replicas")
	if err := s.fleet.Stop(ctx, stopLimit); err != nil {
		return nil, err
	}
	left, err := s.fleet.Records()
	if err != nil {
		return nil, err
	}
	rec.Reconciles = left.Reconciles
	r.Overlaps = s.overlaps(rec.Reconciles, left.Ended, s.o.key() == slot.KeyUID)
	if s.migrates {
		s.judgeSides(r, rec.Reconciles, left.Ended)
		return r, nil
	}
	updates = slices.DeleteFunc(updates, func(u judge.Update) bool { return u.Generation == 1 }) // a new Website
	rec.Latencies = judge.Latencies(updates, rec.Reconciles)
	s.judgeDuties(r, left.Duties, left.Ended)
	if err := s.judgeAudit(r, rec); err != nil {
		return nil, err
	}
	return r, s.judgePhases(r, rec)
}

// settle waits until the load's last changes are worked in, which may be in vain, and counts what is right.
func (s *Show) settle(ctx context.Context, r *Report) error {
	_ = s.reconciled(ctx, settleLimit, 0) // the report tells
	if err := s.cluster.Sweep(ctx, s.load.Pages); err != nil {
		return fmt.Errorf("delete children of Websites that are gone: %w", err)
	}
	_ = await.Until(ctx, surveyPeriod, settleLimit, func() string {
		c, err := s.cluster.SurveyChildren(ctx, s.load.Pages)
		if err != nil {
			return err.Error()
		}
		return c.Example
	})
	total, behind, example, err := s.load.Survey(ctx)
	if err != nil {
		return err
	}
	r.Objects, r.Reconciled = total, total-behind
	if behind > 0 {
		s.view.log("Not reconciled: %s and %d more", example, behind-1)
	}
	children, err := s.cluster.SurveyChildren(ctx, s.load.Pages)
	r.Children, r.ChildrenRight, r.ChildrenStray = children.Total, children.Right, children.Stray
	if children.Example != "" {
		s.view.log("Wrong about children: %s", children.Example)
	}
	return err
}

// judgeLeftovers looks for pages of Websites that are gone, but for those deleted while their slot was a killed
// replica's.
func (s *Show) judgeLeftovers(ctx context.Context, r *Report, deletions []judge.Deletion, rec *judge.Records) error {
	var left []judge.Deletion
	err := until(ctx, settleLimit/3, func() (problem string) {
		all, err := s.load.Leftovers(deletions)
		if err != nil {
			return err.Error()
		}
		left = slices.DeleteFunc(all, func(d judge.Deletion) bool {
			return rec.Excused(d, slices.Concat(s.phases, s.kills))
		})
		if len(left) > 0 {
			return "a page is left behind"
		}
		return ""
	})
	if err != nil && len(left) == 0 {
		return err
	}
	r.DeletionsMissed = len(left)
	for _, d := range left {
		in := s.world().SlotOf(d.Site)
		s.view.log("Deletion missed: %s (slot %d), at %.1f s", d.Name, in, (d.Commit - s.begun).Seconds())
		for _, m := range rec.Moves {
			if m.Slot == in {
				s.view.log("  slot %d: %s -> %s, from %.1f to %.1f s",
					in, m.From, m.To, (m.Planned - s.begun).Seconds(), (m.Active - s.begun).Seconds())
			}
		}
	}
	return ctx.Err()
}

// judgeOwners counts the slots and duties that nobody has.
func (s *Show) judgeOwners(r *Report) {
	r.Duties, r.DutiesUndone = len(rig.DutyNames), len(rig.DutyNames)
	t := s.Table()
	if t == nil {
		r.UnownedAtEnd = r.Slots
		return
	}
	r.UnownedAtEnd = t.Counts()[""]
	for _, name := range rig.DutyNames {
		if in, ok := t.DutySlot(name); ok && t.At(in).Owner != "" {
			r.DutiesUndone--
		}
	}
}

// overlaps counts reconciles, or runs of duties, of one name by two replicas at once.
func (s *Show) overlaps(all []journal.Reconcile, ended map[string]time.Duration, byUID bool) int {
	found := judge.Overlaps(all, ended, byUID)
	for _, o := range found[:min(examples, len(found))] {
		s.view.log("Overlap: %s by %s (%v to %v, epoch %d) and %s (%v to %v, epoch %d)", o.A.Key,
			o.A.Pod, o.A.Start, o.A.End, o.A.Epoch, o.B.Pod, o.B.Start, o.B.End, o.B.Epoch)
	}
	return len(found)
}

// judgeDuties counts the duties that two replicas did at once, and measures how long a killed replica's were not done.
func (s *Show) judgeDuties(r *Report, runs []journal.Reconcile, ended map[string]time.Duration) {
	r.DutyRuns, r.DutyOverlaps = len(runs), s.overlaps(runs, ended, false)
	slices.SortFunc(runs, func(a, b journal.Reconcile) int { return cmp.Compare(a.Start, b.Start) })
	last := map[string]string{} // Pods, by duty
	for _, run := range runs {
		before := last[run.Key.Name]
		last[run.Key.Name] = run.Pod
		for _, p := range s.phases {
			if at, dead := ended[before]; dead && p.Victim == before && before != run.Pod && p.Start <= run.Start &&
				run.Start <= p.End {
				r.DutyTakenOverSeconds = max(r.DutyTakenOverSeconds, (run.Start - at).Seconds())
			}
		}
	}
}

// judgeAudit reads the audit log, if there is one, and looks for writes of replicas that did not own the object.
func (s *Show) judgeAudit(r *Report, rec *judge.Records) error {
	if !s.cluster.Audited() {
		return nil
	}
	rec.Audit = &judge.Log{}
	if err := s.cluster.ReadAudit(rec.Audit, Name); err != nil {
		return err
	}
	rec.Audit.Sort()
	rec.Audit.Saw(rec.History)
	foreign := rec.Audit.Foreign(s.world())
	n := len(foreign)
	labels := rec.Audit.Labelled(s.world(), time.Time{}, s.baseline.WallStart)
	r.ForeignWrites, r.LabelWritesBefore = &n, &labels
	for _, f := range foreign[:min(examples, n)] {
		s.view.log("Foreign write: %s %s %s/%s by %s, but %q owns slot %d (received %s, answered %s; %s)",
			f.Verb, f.Resource, f.Name, f.Subresource, f.Pod, f.Owner, f.Slot,
			f.Received.Format(time.RFC3339Nano), f.Done.Format(time.RFC3339Nano), f.Versions())
	}
	return nil
}

// judgePhases fills in what each phase showed.
func (s *Show) judgePhases(r *Report, rec *judge.Records) error {
	quiet := judge.Waits(rec.Latencies, 0, func(l judge.Latency) bool {
		return s.baseline.Start <= l.Commit && l.Commit < s.baseline.End
	})
	usual := judge.Quantile(quiet, 0.5)
	s.view.log("Undisturbed, a change waited %v for its reconcile (median of %d in %.0f s; p99 %v, max %v); "+
		"the stalls below are beyond that.",
		usual.Round(10*time.Microsecond), len(quiet), (s.baseline.End - s.baseline.Start).Seconds(),
		judge.Quantile(quiet, 0.99).Round(10*time.Microsecond), judge.Quantile(quiet, 1).Round(10*time.Microsecond))
	for _, p := range s.phases {
		moved, err := rec.Moved(p, usual)
		if err != nil {
			return err
		}
		r.Phases = append(r.Phases, newPhase(p, &moved, rec.Audit != nil))
		s.view.log("%s: %d changes to Websites on the move measured", p.Name, len(moved.Waits))
		for _, w := range moved.Writes[:min(examples, len(moved.Writes))] {
			s.view.log("%s: a write only to move: %s %s/%s %s by %s", p.Name, w.Verb, w.Resource, w.Subresource, w.Name, w.User)
		}
		if p.Victim != "" {
			r.TakenOverSeconds = max(r.TakenOverSeconds, s.takenOver(p, rec))
			r.TakeOverBoundSeconds = judge.CrashBound(s.o.LeaseDuration, s.o.RenewDeadline, s.o.WriteTimeout).Seconds()
		}
	}
	for _, p := range s.kills { // another one may have been killed meanwhile, so there is no bound
		s.takenOver(p, rec)
	}
	r.Story = s.told
	return nil
}

// takenOver is how many seconds after the kill the victim's slots were worked on again.
func (s *Show) takenOver(p *judge.Phase, rec *judge.Records) float64 {
	took := rec.TakenOver(p).Seconds()
	s.view.log("%s: the killed replica's %d slots were worked on again %.1f s after the kill", p.Name,
		p.VictimsSlots.Len(), took)
	return took
}
