package dispatch

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	// slack is what the return of keys may take beyond a take's length.
	slack = time.Second
	// overdueSlack is for how long a worker may go on after its take has expired, until it notices.
	overdueSlack = time.Second
	// examples is how many of what must not happen are printed.
	examples = 5
)

// finish judges the run, once the load has ended.
func (e *engine) finish(ctx context.Context) (*Report, error) {
	e.Log("The load has ended; checking")
	rec, err := e.Moves()
	if err != nil {
		return nil, err
	}
	updates, deletions := e.Load.Take()
	settled, err := e.Settle(ctx)
	if err != nil {
		return nil, err
	}
	missed, inCrash, err := e.Missed(ctx, deletions, rec)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Settled: settled, Dispatchers: dispatchers, Workers: workers, Slots: int(e.Slots), Rate: e.Rate,
		RememberNames: !e.o.Forget,
		TakeSeconds:   e.o.TakeLength.Seconds(),
		Deletions:     len(deletions), DeletionsMissed: len(missed), DeletionsMissedInCrash: len(inCrash),
	}
	for _, d := range deletions {
		if e.Excused(d, rec) {
			r.DeletionsInCrash++
		}
	}
	for _, w := range e.Workers.Live() {
		if slices.Contains(e.pythons, w) {
			r.WorkersInPython++
		}
	}
	e.Log("Stopping the workers and the dispatchers")
	if err := e.Workers.Stop(ctx); err != nil {
		return nil, err
	}
	if err := e.Fleet.Stop(ctx); err != nil {
		return nil, err
	}
	left, err := e.Workers.Records()
	if err != nil {
		return nil, err
	}
	rec.Reconciles, rec.Latencies = left.Reconciles, judge.Latencies(updates, left.Reconciles)
	e.judgeTakes(r, rec.Reconciles, updates)
	e.judgeLosses(r, rec.Reconciles)
	return r, e.judgePhases(r, rec)
}

// judgeTakes judges the journals.
func (e *engine) judgeTakes(r *Report, all []journal.Reconcile, updates []judge.Update) {
	r.Takes = len(all)
	overlaps := judge.TakeOverlaps(all)
	r.Overlaps = len(overlaps)
	for _, o := range overlaps[:min(examples, len(overlaps))] {
		e.Log("Overlap: %s by %s (%v to %v, deadline %v, epoch %d) and %s (%v to %v, epoch %d)", o.A.Key.Name, o.A.Pod,
			o.A.Start, o.A.End, o.A.Deadline, o.A.Epoch, o.B.Pod, o.B.Start, o.B.End, o.B.Epoch)
	}
	r.OverdueBoundSeconds = overdueSlack.Seconds()
	r.OverdueSeconds = judge.Overdue(all, func(worker string) bool {
		return slices.ContainsFunc(e.losses, func(l loss) bool { return l.stopped && l.worker == worker })
	}).Seconds()
	there := map[judge.Site]bool{}
	for _, s := range e.Load.Sites() {
		there[s] = true
	}
	unseen := judge.Unseen(updates, all, func(key types.NamespacedName, uid string) bool {
		return there[judge.Site{NamespacedName: key, UID: uid}]
	})
	r.KeysLost = len(unseen)
	for _, u := range unseen[:min(examples, len(unseen))] {
		e.Log("Lost: %s, changed at %.1f s", u.Key.Name, e.Since(u.Commit))
	}
}

// judgeLosses judges what came of the takes of workers that were lost.
func (e *engine) judgeLosses(r *Report, all []journal.Reconcile) {
	r.RetakenBoundSeconds = (e.o.TakeLength + slack).Seconds()
	for _, l := range e.losses {
		if l.stopped {
			r.WorkersStopped++
		} else {
			r.WorkersKilled++
		}
		for _, lost := range judge.Retaken(all, l.worker, l.at) {
			r.TakesLost++
			if lost.Waited < 0 {
				r.KeysNotRetaken++
				e.Log("%s had %s when it was lost at %.1f s, and nobody took it again", l.worker, lost.Lost.Key.Name,
					e.Since(l.at))
			}
			r.RetakenSeconds = max(r.RetakenSeconds, lost.Waited.Seconds())
		}
	}
}

// judgePhases fills in what each phase showed, and how long the keys of the dead dispatcher waited.
func (e *engine) judgePhases(r *Report, rec *judge.Records) error {
	r.TakeOverBoundSeconds = judge.CrashBound(e.LeaseDuration, 0, 0).Seconds()
	e.Baseline.Name = "undisturbed"
	for _, run := range append([]*judge.Phase{&e.Baseline}, e.Phases...) {
		moved, err := rec.Moved(run, 0)
		if err != nil {
			return err
		}
		in := func(at time.Duration) bool { return run.Start <= at && at < run.End }
		waits := judge.Waits(rec.Latencies, 0, func(l judge.Latency) bool { return in(l.Commit) })
		p := Phase{
			Name: run.Name, MovedSlots: moved.Slots, Changes: len(waits), Wait: judge.SpreadOf(waits),
			Seconds: (run.End - run.Start).Round(100 * time.Millisecond).Seconds(),
		}
		for _, t := range rec.Reconciles {
			if in(t.Start) {
				p.Takes++
				if t.Attempt > 1 {
					p.Again++
				}
			}
		}
		r.Phases = append(r.Phases, p)
		if run.Victim != "" {
			first, last := rec.TakenOver(run)
			r.FirstTakenOverSeconds, r.TakenOverSeconds = first.Seconds(), last.Seconds()
		}
	}
	return nil
}
