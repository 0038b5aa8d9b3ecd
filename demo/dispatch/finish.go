package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	// settleLimit is how long after the load's end everything may take to be reconciled.
	settleLimit = 30 * time.Second
	// stopLimit is how long processes may take to end.
	stopLimit = 40 * time.Second
	// slack is what the return of keys may take beyond a take's length.
	slack = time.Second
	// overdueSlack is for how long a worker may go on after its take has expired, until it notices.
	overdueSlack = time.Second
)

// finish judges the run, once the load has ended.
func (e *engine) finish(ctx context.Context) (*Report, error) {
	e.log("The load has ended; checking")
	history, err := e.follow.History()
	if err != nil {
		return nil, err
	}
	moves := history.Moves()
	updates, deletions := e.load.Take()
	// The waits may be in vain; the report tells.
	if err := e.reconciled(ctx, settleLimit); err != nil && ctx.Err() == nil {
		e.log("%v", err)
	}
	if err := e.cluster.Sweep(ctx, e.pages); err != nil {
		return nil, fmt.Errorf("delete children of Websites that are gone: %w", err)
	}
	_ = await.Until(ctx, surveyPeriod, settleLimit/3, func() string {
		left, err := e.leftovers(deletions)
		if err != nil || len(left) > 0 {
			return "pages are left behind"
		}
		return ""
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &Report{
		Dispatchers: dispatchers, Workers: workers, Slots: int(e.o.Slots), Rate: e.o.Rate, RememberNames: !e.o.Forget,
		TakeSeconds: e.o.TakeLength.Seconds(),
	}
	for _, w := range e.team() {
		if w.python {
			r.WorkersInPython++
		}
	}
	total, behind, example, err := e.survey(ctx)
	if err != nil {
		return nil, err
	}
	if r.Objects, r.Reconciled = total, total-behind; behind > 0 {
		e.log("Not reconciled: %s and %d more", example, behind-1)
	}
	children, err := e.cluster.SurveyChildren(ctx, e.pages)
	if err != nil {
		return nil, err
	}
	r.Children, r.ChildrenRight = children.Total, children.Right
	if children.Example != "" {
		e.log("Wrong about children: %s", children.Example)
	}
	if err := e.judgeDeletions(r, deletions, history); err != nil {
		return nil, err
	}
	if c := e.load.Counts(); c.Failures > 0 {
		e.log("%d requests of the load failed, the last one: %v", c.Failures, c.Err)
	}
	e.log("Stopping the workers and the dispatchers")
	if err := e.stop(ctx); err != nil {
		return nil, err
	}
	all, err := e.takes()
	if err != nil {
		return nil, err
	}
	e.judgeTakes(r, all, updates)
	e.judgeCrash(r, all, moves)
	e.measure(r, all, moves, judge.Latencies(updates, all))
	return r, nil
}

// stop ends the workers, and then the dispatchers.
func (e *engine) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	end := func(name string, p interface {
		End(sig syscall.Signal) error
		Done() <-chan struct{}
		Failure() error
	},
	) error {
		if err := p.End(syscall.SIGTERM); err != nil {
			return err
		}
		select {
		case <-p.Done():
			return p.Failure()
		case <-ctx.Done():
			return fmt.Errorf("%s did not end within %v of SIGTERM", name, stopLimit)
		}
	}
	for _, w := range e.team() {
		if err := end(w.name, w); err != nil {
			return err
		}
	}
	for _, d := range e.tier() {
		if err := end(d.pod, d); err != nil {
			return err
		}
	}
	return nil
}

// leftovers returns the Websites that are gone and whose pages are not.
func (e *engine) leftovers(deletions []judge.Deletion) (out []judge.Deletion, err error) {
	files, err := os.ReadDir(e.pages.Dir)
	if err != nil {
		return nil, err
	}
	there := map[types.NamespacedName]bool{}
	for _, s := range e.load.Sites() {
		there[s.NamespacedName] = true
	}
	gone := map[types.NamespacedName]judge.Deletion{}
	for _, d := range deletions {
		gone[d.NamespacedName] = d
	}
	for _, f := range files {
		namespace, name, ok := strings.Cut(strings.TrimSuffix(f.Name(), ".html"), "_")
		key := types.NamespacedName{Namespace: namespace, Name: name}
		if ok && strings.HasSuffix(f.Name(), ".html") && !there[key] {
			out = append(out, cmp.Or(gone[key], judge.Deletion{Site: judge.Site{NamespacedName: key}}))
		}
	}
	return out, nil
}

// judgeDeletions tells deletions that were missed in planned moves, or in none, from those of the killed dispatcher.
func (e *engine) judgeDeletions(r *Report, deletions []judge.Deletion, history judge.History) error {
	left, err := e.leftovers(deletions)
	if err != nil {
		return err
	}
	moves := history.Moves()
	excused := func(d judge.Deletion) bool {
		return slices.ContainsFunc(e.crashes, func(c *crash) bool {
			return history.CrashOf(c.pod, c.at).Excuses(moves, e.slotOf(d.Site), d.Commit, 0)
		})
	}
	for _, d := range left {
		if excused(d) {
			r.DeletionsMissedInCrash++
			continue
		}
		r.DeletionsMissed++
		e.log("Deletion missed: %s (slot %d), at %.1f s", d.Name, e.slotOf(d.Site), (d.Commit - e.begun).Seconds())
	}
	for _, d := range deletions {
		if excused(d) {
			r.DeletionsInCrash++
		}
	}
	r.Deletions = len(deletions)
	return nil
}

// judgeTakes judges the journals.
func (e *engine) judgeTakes(r *Report, all []journal.Reconcile, updates []judge.Update) {
	r.Takes = len(all)
	overlaps := judge.TakeOverlaps(all)
	r.Overlaps = len(overlaps)
	for _, o := range overlaps[:min(5, len(overlaps))] {
		e.log("Overlap: %s by %s (%v to %v, deadline %v, epoch %d) and %s (%v to %v, epoch %d)", o.A.Key.Name, o.A.Pod,
			o.A.Start, o.A.End, o.A.Deadline, o.A.Epoch, o.B.Pod, o.B.Start, o.B.End, o.B.Epoch)
	}
	stopped := map[string]bool{}
	for _, l := range e.losses {
		if stopped[l.worker] = stopped[l.worker] || l.stopped; l.stopped {
			r.WorkersStopped++
		} else {
			r.WorkersKilled++
		}
		for _, lost := range judge.Retaken(all, l.worker, l.at) {
			r.TakesLost++
			if lost.Waited < 0 {
				r.KeysNotRetaken++
				e.log("%s had %s when it was lost at %.1f s, and nobody took it again", l.worker, lost.Lost.Key.Name,
					(l.at - e.begun).Seconds())
			}
			r.RetakenSeconds = max(r.RetakenSeconds, lost.Waited.Seconds())
		}
	}
	r.RetakenBoundSeconds = (e.o.TakeLength + slack).Seconds()
	overdue := judge.Overdue(all, overdueSlack)
	r.Overdue = len(slices.DeleteFunc(overdue, func(t journal.Reconcile) bool { return stopped[t.Pod] }))
	there := map[judge.Site]bool{}
	for _, s := range e.load.Sites() {
		there[s] = true
	}
	unseen := judge.Unseen(updates, all, func(key types.NamespacedName, uid string) bool {
		return there[judge.Site{NamespacedName: key, UID: uid}]
	})
	r.KeysLost = len(unseen)
	for _, u := range unseen[:min(5, len(unseen))] {
		e.log("Lost: %s, changed at %.1f s", u.Key.Name, (u.Commit - e.begun).Seconds())
	}
}

// judgeCrash measures how long the keys of dead dispatchers waited.
func (e *engine) judgeCrash(r *Report, all []journal.Reconcile, moves []judge.Move) {
	r.TakeOverBoundSeconds = judge.CrashBound(e.o.LeaseDuration, 0, 0).Seconds()
	for _, c := range e.crashes {
		worked := map[slot.Slot]time.Duration{}
		for _, t := range all {
			if t.UID == "" || t.Epoch <= c.epoch || t.Start <= c.at {
				continue
			}
			s := e.slotOf(judge.Site{NamespacedName: t.Key})
			if at, ok := worked[s]; c.slots.Has(s) && (!ok || t.Start < at) {
				worked[s] = t.Start
			}
		}
		r.TakenOverSeconds = max(r.TakenOverSeconds, judge.TakenOver(moves, c.slots, c.at, worked).Seconds())
		for _, at := range worked {
			if first := (at - c.at).Seconds(); r.FirstTakenOverSeconds == 0 || first < r.FirstTakenOverSeconds {
				r.FirstTakenOverSeconds = first
			}
		}
	}
}

// measure fills in what each phase showed.
func (e *engine) measure(r *Report, all []journal.Reconcile, moves []judge.Move, latencies []judge.Latency) {
	for _, run := range e.phases {
		p := Phase{Name: run.name, Seconds: (run.end - run.start).Round(100 * time.Millisecond).Seconds()}
		moved := map[slot.Slot]bool{}
		for _, m := range moves {
			if m.Active > run.start && m.Active <= run.end {
				moved[m.Slot] = true
			}
		}
		p.MovedSlots = len(moved)
		for _, t := range all {
			if t.Start >= run.start && t.Start < run.end {
				p.Takes++
				if t.Attempt > 1 {
					p.Again++
				}
			}
		}
		waits := judge.Waits(latencies, 0, func(l judge.Latency) bool {
			return run.start <= l.Commit && l.Commit < run.end
		})
		p.Changes = len(waits)
		p.Wait = verdict.SpreadOf(waits)
		r.Phases = append(r.Phases, p)
	}
}
