package demo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// examples is how many of what must not happen are printed.
const examples = 5

// finish judges the run, once the load has ended.
func (s *Show) finish(ctx context.Context) (*Report, error) {
	s.Log("the load has ended; checking")
	rec, err := s.Moves()
	if err != nil {
		return nil, err
	}
	r := &Report{
		Migrated: s.migrates, Members: len(s.Fleet.Live()), Slots: int(s.Slots), Rate: s.Rate, Delivery: s.o.Delivery,
	}
	updates, deletions := s.Load.Take()
	if r.Settled, err = s.Settle(ctx); err != nil {
		return nil, err
	}
	if !s.migrates {
		missed, _, err := s.Missed(ctx, deletions, rec)
		if err != nil {
			return nil, err
		}
		r.DeletionsMissed = len(missed)
		s.judgeOwners(r)
	}
	s.Log("stopping the replicas")
	if err := s.Fleet.Stop(ctx); err != nil {
		return nil, err
	}
	left, err := s.Fleet.Records()
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

// judgeOwners counts the slots and duties without an owner.
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
		s.Log("Overlap: %s by %s (%v to %v, epoch %d) and %s (%v to %v, epoch %d)", o.A.Key,
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
		for _, p := range s.Phases {
			if at, dead := ended[before]; dead && p.Victim == before && before != run.Pod && p.Start <= run.Start &&
				run.Start <= p.End {
				r.DutyTakenOverSeconds = max(r.DutyTakenOverSeconds, (run.Start - at).Seconds())
			}
		}
	}
}

// judgeAudit reads the audit log, if there is one, and looks for writes of replicas that did not own the object.
func (s *Show) judgeAudit(r *Report, rec *judge.Records) error {
	if !s.Cluster.Audited() {
		return nil
	}
	rec.Audit = &judge.Log{}
	if err := s.Cluster.ReadAudit(rec.Audit, Name); err != nil {
		return err
	}
	rec.Audit.Sort()
	rec.Audit.Saw(rec.History)
	foreign := rec.Audit.Foreign(s.World())
	n := len(foreign)
	labels := rec.Audit.Labelled(s.World(), time.Time{}, s.Baseline.WallStart)
	r.ForeignWrites, r.LabelWritesBefore = &n, &labels
	for _, f := range foreign[:min(examples, n)] {
		s.Log("Foreign write: %s %s %s/%s by %s, but %q owns slot %d (received %s, answered %s; %s)",
			f.Verb, f.Resource, f.Name, f.Subresource, f.Pod, f.Owner, f.Slot,
			f.Received.Format(time.RFC3339Nano), f.Done.Format(time.RFC3339Nano), f.Versions())
	}
	return nil
}

// judgePhases fills in what each phase showed.
func (s *Show) judgePhases(r *Report, rec *judge.Records) error {
	quiet := judge.Waits(rec.Latencies, 0, func(l judge.Latency) bool {
		return s.Baseline.Start <= l.Commit && l.Commit < s.Baseline.End
	})
	usual := judge.Quantile(quiet, 0.5)
	s.Log("Undisturbed, a change waited %v for its reconcile (median of %d in %.0f s; p99 %v, max %v); "+
		"the stalls below are beyond that.",
		usual.Round(10*time.Microsecond), len(quiet), (s.Baseline.End - s.Baseline.Start).Seconds(),
		judge.Quantile(quiet, 0.99).Round(10*time.Microsecond), judge.Quantile(quiet, 1).Round(10*time.Microsecond))
	for _, p := range s.Phases {
		moved, err := rec.Moved(p, usual)
		if err != nil {
			return err
		}
		r.Phases = append(r.Phases, newPhase(p, &moved, rec.Audit != nil))
		s.Log("%s: %d changes to Websites on the move measured", p.Name, len(moved.Waits))
		for _, w := range moved.Writes[:min(examples, len(moved.Writes))] {
			s.Log("%s: a write only to move: %s %s/%s %s by %s", p.Name, w.Verb, w.Resource, w.Subresource, w.Name, w.User)
		}
		if p.Victim != "" {
			r.TakenOverSeconds = max(r.TakenOverSeconds, s.takenOver(p, rec))
			r.TakeOverBoundSeconds = judge.CrashBound(s.LeaseDuration, s.o.RenewDeadline, s.o.WriteTimeout).Seconds()
		}
	}
	for _, p := range s.Kills { // another one may have been killed meanwhile, so there is no bound
		s.takenOver(p, rec)
	}
	r.Story = s.claims
	return nil
}

// takenOver is how many seconds after the kill the victim's slots were worked on again.
func (s *Show) takenOver(p *judge.Phase, rec *judge.Records) float64 {
	_, last := rec.TakenOver(p)
	took := last.Seconds()
	s.Log("%s: the killed replica's %d slots were worked on again %.1f s after the kill", p.Name,
		p.VictimsSlots.Len(), took)
	return took
}
