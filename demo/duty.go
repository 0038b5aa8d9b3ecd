package demo

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/demo/verdict"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/test/journal"
	"github.com/rota-dev/rota/test/judge"
)

const (
	// dutyNamespace is in the journal what tells a run of a duty from a reconcile.
	dutyNamespace = "duty"
	// dutyPeriod is the time between two writes of a duty.
	dutyPeriod = 500 * time.Millisecond
	// longGap is from when on a handover of a duty is told by itself.
	longGap = time.Second
)

// dutyNames are the duties of the operator. Each keeps a ConfigMap of its name current: one with how many Websites
// there are, the other with how many pages.
var dutyNames = []string{"pages", "websites"}

// declareDuties declares the duties of a replica. Each run is journaled like a reconcile.
func (c *operatorConfig) declareDuties(r *rota.Rota, kube client.Client, live client.Reader, w *journal.Writer) error {
	counts := map[string]func(context.Context) (int, error){
		"pages": func(context.Context) (int, error) {
			files, err := os.ReadDir(c.Pages)
			return len(files), err
		},
		"websites": func(ctx context.Context) (int, error) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(webv1.GroupVersion.WithKind("WebsiteList"))
			err := live.List(ctx, list)
			return len(list.Items), err
		},
	}
	for _, name := range dutyNames {
		err := r.Duty(name, func(ctx context.Context) error {
			epoch, _ := gate.EpochFrom(ctx)
			_, end := w.Start(journal.Now(), types.NamespacedName{Namespace: dutyNamespace, Name: name}, name, 0, epoch)
			defer end()
			for {
				n, err := counts[name](ctx)
				if err == nil {
					err = keepCount(ctx, kube, name, n)
				}
				if err != nil && ctx.Err() == nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(dutyPeriod):
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// keepCount writes a number to a ConfigMap.
func keepCount(ctx context.Context, kube client.Client, name string, n int) error {
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: rotaNamespace, Name: rotaName + "-" + name},
		Data:       map[string]string{"count": strconv.Itoa(n)},
	}
	err := kube.Update(ctx, obj) // without a resourceVersion: only the owner of the duty may write
	if apierrors.IsNotFound(err) {
		err = kube.Create(ctx, obj)
	}
	return err
}

// splitDuties returns the reconciles, and the runs of duties.
func splitDuties(all []journal.Reconcile) (reconciles, duties []journal.Reconcile) {
	for _, r := range all {
		if r.Key.Namespace == dutyNamespace {
			duties = append(duties, r)
		} else {
			reconciles = append(reconciles, r)
		}
	}
	return reconciles, duties
}

// judgeDuties fills in what the runs of duties showed.
func (e *engine) judgeDuties(r *Report, runs []journal.Reconcile, ended map[string]time.Duration) {
	r.Duties, r.DutyRuns = len(dutyNames), len(runs)
	overlaps := judge.Overlaps(runs, ended, false)
	r.DutyOverlaps = len(overlaps)
	for _, o := range overlaps[:min(5, len(overlaps))] {
		e.view.log("Overlap: duty %s by %s (%v to %v, epoch %d) and %s (%v to %v, epoch %d)", o.A.Key.Name,
			o.A.Pod, o.A.Start, o.A.End, o.A.Epoch, o.B.Pod, o.B.Start, o.B.End, o.B.Epoch)
	}
	slices.SortFunc(runs, func(a, b journal.Reconcile) int { return int(a.Start - b.Start) })
	last := map[string]journal.Reconcile{}
	var moves []time.Duration
	for _, run := range runs {
		before, known := last[run.Key.Name]
		last[run.Key.Name] = run
		phase := e.phaseAt(run.Start)
		if !known || before.Pod == run.Pod || phase == nil {
			continue
		}
		switch at, dead := ended[before.Pod]; {
		case phase.victim == before.Pod && dead:
			r.DutyTakenOverSeconds = max(r.DutyTakenOverSeconds, (run.Start - at).Seconds())
		case before.End > 0 && plannedPhases[phase.name]:
			gap := run.Start - before.End
			moves = append(moves, gap)
			if gap > longGap {
				e.view.log("%s: nobody did duty %s for %v, from its end on %s until its start on %s, %.1f s after the start",
					phase.name, run.Key.Name, gap.Round(time.Millisecond), before.Pod, run.Pod, (run.Start - e.begun).Seconds())
			}
		}
	}
	slices.Sort(moves)
	r.DutyMoves = len(moves)
	r.DutyGap = verdict.SpreadOf(moves)
}

// plannedPhases are those in which duties are only handed over.
var plannedPhases = map[string]bool{"join": true, "leave": true, "rollout": true, "grow": true, "shrink": true}

func (e *engine) phaseAt(at time.Duration) *phaseRun {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.phases {
		if p.start <= at && at <= p.end {
			return p
		}
	}
	return nil
}

// dutyVerdicts say whether duties were done as they have to be.
func (r *Report) dutyVerdicts() []verdict.Verdict {
	all := []verdict.Verdict{
		verdict.Of(r.DutyOverlaps == 0,
			fmt.Sprintf("no duty was ever done by two replicas at once (%d duties, %d runs)", r.Duties, r.DutyRuns),
			verdict.Count(r.DutyOverlaps, "time a duty was", "times a duty was")+" done by two replicas at once"),
		verdict.Of(r.DutiesUndone == 0, "every duty is done by a replica",
			verdict.Count(r.DutiesUndone, "duty is", "duties are")+" done by nobody"),
	}
	if bound := r.TakeOverBoundSeconds; bound > 0 && r.DutyTakenOverSeconds > 0 {
		all = append(all, verdict.Of(r.DutyTakenOverSeconds <= bound,
			fmt.Sprintf("the killed replica's duty was done again after %.1f s", r.DutyTakenOverSeconds),
			fmt.Sprintf("the killed replica's duty was done again only after %.1f s; the bound is %.1f s",
				r.DutyTakenOverSeconds, bound)))
	}
	return all
}
