package demo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/journal"
	"github.com/rota-dev/rota/test/judge"
	"github.com/rota-dev/rota/test/stage"
)

const (
	// settleLimit is how long after the load's end everything may take to be reconciled.
	settleLimit = 30 * time.Second
	// stopLimit is how long replicas may take to end.
	stopLimit = 40 * time.Second
)

// finish judges the run, once the load has ended.
func (e *engine) finish(ctx context.Context) (*Report, error) {
	e.view.title("the load has ended; checking")
	history, err := e.follow.History()
	if err != nil {
		return nil, err
	}
	moves := history.Moves()
	updates, deletions := e.load.Take()
	updates = slices.DeleteFunc(updates, func(u judge.Update) bool { return u.Generation == 1 }) // a new Website
	// The waits may be in vain; the report tells.
	if err := e.settle(ctx); err != nil {
		return nil, err
	}
	_ = until(ctx, settleLimit/3, func() string {
		left, err := e.leftovers(deletions, history, moves)
		if err != nil || len(left) > 0 {
			return "pages are left behind"
		}
		return ""
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &Report{Members: len(e.live()), Slots: int(e.o.Slots), Rate: e.o.Rate, Delivery: e.o.Delivery}
	if err := e.count(ctx, r); err != nil {
		return nil, err
	}
	left, err := e.leftovers(deletions, history, moves)
	if err != nil {
		return nil, err
	}
	r.DeletionsMissed = len(left)
	for _, d := range left {
		s := e.slotOf(d.Site)
		e.view.log("Deletion missed: %s (slot %d), at %.1f s", d.Name, s, (d.Commit - e.begun).Seconds())
		for _, m := range moves {
			if m.Slot == s {
				e.view.log("  slot %d: %s -> %s, from %.1f to %.1f s",
					s, m.From, m.To, (m.Planned - e.begun).Seconds(), (m.Active - e.begun).Seconds())
			}
		}
	}
	if t, _ := e.follow.Latest(); t != nil {
		r.UnownedAtEnd = t.Counts()[""]
		r.DutiesUndone = len(dutyNames)
		for _, name := range dutyNames {
			if s, ok := t.DutySlot(name); ok && t.At(s).Owner != "" {
				r.DutiesUndone--
			}
		}
	}
	if e.o.Autoscale != nil {
		e.judgeScaling(r)
	}
	r.Trials = e.trials
	if c := e.load.Counts(); c.Failures > 0 {
		e.view.log("%s of the load failed, the last one: %v", verdict.Count(c.Failures, "request", "requests"), c.Err)
	}

	e.view.title("stopping the replicas")
	if err := e.stop(ctx, stopLimit); err != nil {
		e.view.log("%v", err)
	}
	all, ended, err := e.journals()
	if err != nil {
		return nil, err
	}
	all, duties := splitDuties(all)
	e.judgeDuties(r, duties, ended)
	overlaps := judge.Overlaps(all, ended, e.o.key() == slot.KeyUID)
	r.Overlaps = len(overlaps)
	for _, o := range overlaps[:min(5, len(overlaps))] {
		e.view.log("Overlap: %s by %s (%v to %v, epoch %d) and %s (%v to %v, epoch %d)", o.A.Key.Name,
			o.A.Pod, o.A.Start, o.A.End, o.A.Epoch, o.B.Pod, o.B.Start, o.B.End, o.B.Epoch)
	}
	audit, err := e.readAudit()
	if err != nil {
		return nil, err
	}
	if audit != nil {
		audit.Saw(history)
		foreign := audit.Foreign(e.world())
		n := len(foreign)
		r.ForeignWrites = &n
		labels := audit.Labelled(e.world(), time.Time{}, e.baseline.wallStart)
		r.LabelWritesBefore = &labels
		for _, f := range foreign[:min(5, n)] {
			e.view.log("Foreign write: %s %s %s/%s by %s, but %q owns slot %d (received %s, answered %s; %s)",
				f.Verb, f.Resource, f.Name, f.Subresource, f.Pod, f.Owner, f.Slot,
				f.Received.Format(time.RFC3339Nano), f.Done.Format(time.RFC3339Nano), f.Versions())
		}
	}
	return r, e.measure(r, history, moves, judge.Latencies(updates, all), all, audit)
}

// journals returns all reconciles, and when each replica ended.
func (e *engine) journals() ([]journal.Reconcile, map[string]time.Duration, error) {
	var all []journal.Reconcile
	ended := map[string]time.Duration{}
	for _, p := range e.all() {
		list, err := p.reconciles()
		if err != nil {
			return nil, nil, err
		}
		all = append(all, list...)
		if at, over := p.Ended(); over {
			ended[p.pod] = at
		}
	}
	return all, ended, nil
}

func (e *engine) readAudit() (*judge.Log, error) {
	if !e.cluster.Audited() {
		return nil, nil // there is none
	}
	var log judge.Log
	if err := e.cluster.ReadAudit(&log, rotaName); err != nil {
		return nil, err
	}
	log.Sort()
	return &log, nil
}

// leftovers returns the Websites that are gone and whose pages are not, but for those deleted while their slot was a
// killed replica's.
func (e *engine) leftovers(
	deletions []judge.Deletion, history judge.History, moves []judge.Move,
) ([]judge.Deletion, error) {
	files, err := os.ReadDir(e.pages)
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
	var out []judge.Deletion
	for _, f := range files {
		namespace, name, ok := strings.Cut(strings.TrimSuffix(f.Name(), ".html"), "_")
		key := types.NamespacedName{Namespace: namespace, Name: name}
		if ok && !there[key] && !e.excused(gone[key], history, moves) {
			out = append(out, cmp.Or(gone[key], judge.Deletion{Site: judge.Site{NamespacedName: key}}))
		}
	}
	return out, nil
}

// settle waits until the load's last changes are worked in. It may be in vain; the report tells.
func (e *engine) settle(ctx context.Context) error {
	_ = await.Until(ctx, surveyPeriod, settleLimit, func() string { return e.unreconciled(ctx) })
	if err := e.cluster.Sweep(ctx, e.load.pages); err != nil {
		return fmt.Errorf("delete children of Websites that are gone: %w", err)
	}
	_ = await.Until(ctx, surveyPeriod, settleLimit, func() string {
		c, err := e.cluster.SurveyChildren(ctx, e.load.pages)
		if err != nil {
			return err.Error()
		}
		return c.Example
	})
	return nil
}

// count counts Websites and their children, and those that are right.
func (e *engine) count(ctx context.Context, r *Report) error {
	total, behind, example, err := e.survey(ctx)
	if err != nil {
		return err
	}
	r.Objects, r.Reconciled = total, total-behind
	if behind > 0 {
		e.view.log("Not reconciled: %s and %d more", example, behind-1)
	}
	children, err := e.cluster.SurveyChildren(ctx, e.load.pages)
	if err != nil {
		return err
	}
	r.Children, r.ChildrenRight, r.ChildrenStray = children.Total, children.Right, children.Stray
	if children.Example != "" {
		e.view.log("Wrong about children: %s", children.Example)
	}
	return nil
}

func (e *engine) excused(d judge.Deletion, history judge.History, moves []judge.Move) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(slices.Concat(e.phases, e.kills), func(p *phaseRun) bool {
		return p.victim != "" && history.CrashOf(p.victim, p.killed).Excuses(moves, e.slotOf(d.Site), d.Commit, p.end)
	})
}

// measure fills in what each phase showed.
func (e *engine) measure(
	r *Report, history judge.History, moves []judge.Move, latencies []judge.Latency, all []journal.Reconcile,
	audit *judge.Log,
) error {
	quiet := judge.Waits(latencies, 0, func(l judge.Latency) bool {
		return e.baseline.start <= l.Commit && l.Commit < e.baseline.end
	})
	median := judge.Quantile(quiet, 0.5)
	e.view.log("Undisturbed, a change waited %v for its reconcile (median of %d in %.0f s; p99 %v, max %v); "+
		"the stalls below are beyond that.",
		median.Round(10*time.Microsecond), len(quiet), (e.baseline.end - e.baseline.start).Seconds(),
		judge.Quantile(quiet, 0.99).Round(10*time.Microsecond), judge.Quantile(quiet, 1).Round(10*time.Microsecond))
	samples, err := e.traffic()
	if err != nil {
		return err
	}
	for _, run := range e.phases {
		before, after := sumAt(samples, run.start), sumAt(samples, run.end)
		p := Phase{
			ReceivedObjects: after.received - before.received, ForeignObjects: after.foreign - before.foreign,
			MachineBusy: run.busy, Name: run.name, Seconds: (run.end - run.start).Round(100 * time.Millisecond).Seconds(),
		}
		windows, perSlot := map[slot.Slot][]judge.Move{}, map[slot.Slot]int{}
		for _, s := range run.sites {
			perSlot[e.slotOf(s)]++
		}
		for _, m := range moves {
			if m.Active <= run.start || m.Active > run.end {
				continue
			}
			if m.From == run.victim && run.victim != "" {
				m.Planned = min(m.Planned, run.killed)
			}
			windows[m.Slot] = append(windows[m.Slot], m)
			p.transfers += m.Transfers
			p.MovedObjects += perSlot[m.Slot] * (1 + len(stage.ChildKinds)) * m.Transfers
		}
		p.MovedSlots = len(windows)
		if p.MovedSlots > 0 {
			p.MovesPerSlot = float64(p.transfers) / float64(p.MovedSlots)
		}
		waits := judge.Waits(latencies, median, func(l judge.Latency) bool {
			moved := windows[e.slotOf(judge.Site{NamespacedName: l.Key, UID: l.UID})]
			return slices.ContainsFunc(moved, func(m judge.Move) bool {
				return m.Planned <= l.Commit && l.Commit <= m.Active
			})
		})
		p.canaries = len(waits)
		p.Stall = verdict.SpreadOf(waits)
		for _, v := range history {
			if v.At > run.start && v.At <= run.end {
				p.TableWrites++
			}
		}
		if audit != nil {
			p.TableWrites = audit.TableWrites(run.wallStart, run.wallEnd)
			writes := audit.MoveWrites(e.world(), run.wallStart, run.wallEnd)
			n := len(writes)
			for _, w := range writes[:min(3, n)] {
				e.view.log("%s: a write only to move: %s %s/%s %s by %s",
					run.name, w.Verb, w.Resource, w.Subresource, w.Name, w.User)
			}
			listed, err := audit.ListedBy(e.world(), run.wallStart, run.wallEnd, run.sites)
			if err != nil {
				return err
			}
			labels := audit.Labelled(e.world(), run.wallStart, run.wallEnd)
			p.ObjectWrites, p.ListedObjects, p.LabelWrites = &n, &listed, &labels
		}
		e.view.log("%s: %d changes to Websites on the move measured", run.name, p.canaries)
		if run.victim != "" {
			took := judge.TakenOver(moves, run.victimsSlots, run.killed, e.worked(run, all)).Seconds()
			r.TakenOverSeconds = max(r.TakenOverSeconds, took)
			r.TakeOverBoundSeconds = judge.CrashBound(e.o.LeaseDuration, e.o.RenewDeadline, e.o.WriteTimeout).Seconds()
			e.view.log("%s: the killed replica's slots were worked on again %.1f s after the kill", run.name, took)
		}
		r.Phases = append(r.Phases, p)
	}
	e.tellKills(moves, all)
	return nil
}

// worked returns when a new owner was first seen to reconcile an object of each of the killed replica's slots.
func (e *engine) worked(run *phaseRun, all []journal.Reconcile) map[slot.Slot]time.Duration {
	first := map[slot.Slot]time.Duration{}
	for _, r := range all {
		if r.UID == "" || r.Pod == run.victim || r.Start <= run.killed {
			continue
		}
		s := e.slotOf(judge.Site{NamespacedName: r.Key, UID: r.UID})
		if at, ok := first[s]; run.victimsSlots.Has(s) && (!ok || r.Start < at) {
			first[s] = r.Start
		}
	}
	return first
}
