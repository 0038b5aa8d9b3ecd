package demo

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/demo/verdict"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/journal"
	"github.com/rota-dev/rota/test/judge"
)

// electionName is the Lease of the stock replicas' leader election.
const electionName = "website-operator"

// migration is the story of Options.Migrate: stock replicas are replaced by members of a rota in a rolling update, and
// these by stock replicas.
func (e *engine) migration(ctx, loading, later context.Context) error {
	e.view.title("setting up")
	e.view.log("Starting %d replicas with leader election, and creating Websites.", replicas)
	for range replicas {
		if _, err := e.startMode("v1", e.o.Command, true); err != nil {
			return err
		}
	}
	if err := e.fill(ctx); err != nil {
		return err
	}
	e.view.log("All %d Websites are reconciled. From here on %v of them are changed, deleted or recreated per second.",
		e.o.Objects, e.o.Rate)
	e.aimed(canaryRate)
	e.load.run(loading, later, e.o.Rate)
	if err := await.Sleep(ctx, 2*time.Second); err != nil { // until the load has its pace
		return err
	}
	if err := await.Sleep(ctx, e.o.Baseline); err != nil {
		return err
	}
	for _, step := range []struct {
		name  string
		stock bool
	}{{"there", false}, {"back", true}} {
		if err := e.goOver(ctx, step.name, step.stock); err != nil {
			return fmt.Errorf("the way %s: %w", step.name, err)
		}
	}
	return nil
}

// goOver replaces all replicas one by one, with one more than usual meanwhile, and then waits until the new ones work.
func (e *engine) goOver(ctx context.Context, name string, stock bool) error {
	run := &phaseRun{name: name}
	run.begin()
	old := e.live()
	for i, p := range old {
		e.view.title(fmt.Sprintf("the way %s, %d of %d: %s goes", name, i+1, len(old), p.pod))
		fresh, err := e.startMode("v2", e.o.Command, stock)
		if err != nil {
			return err
		}
		// A stock replica is ready when it runs, a member when the table names it.
		ready := func() string { return e.absent(fresh.pod) }
		if stock {
			ready = func() string { return notRunning(fresh) }
		}
		if err := until(ctx, stepLimit, ready); err != nil {
			return err
		}
		if err := await.Sleep(ctx, readyAfter); err != nil {
			return err
		}
		if err := p.End(syscall.SIGTERM); err != nil {
			return err
		}
		if err := until(ctx, stepLimit, p.Lingers); err != nil {
			return err
		}
	}
	rotaHolds := "rota:" + rotaNamespace + "/" + rotaName
	err := until(ctx, stepLimit, func() string {
		holder, err := e.holder(ctx)
		if err != nil {
			return err.Error()
		}
		if holder == "" || (holder == rotaHolds) == stock {
			return fmt.Sprintf("the Lease is held by %q", holder)
		}
		return ""
	})
	if err == nil && !stock {
		err = e.quiet(ctx)
	}
	if err != nil {
		return err
	}
	// Work goes on for a while on the new side, and the phase has all that the change brings.
	if err := await.Sleep(ctx, max(e.o.Baseline, quietFor)); err != nil {
		return err
	}
	run.finish()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.phases = append(e.phases, run)
	return nil
}

// notRunning says that a stock replica has not logged that it runs.
func notRunning(p *replica) string {
	if strings.Contains(string(p.Tail()), stockRuns) {
		return ""
	}
	return p.pod + " does not run yet"
}

// stockRuns is what a stock replica logs when its manager runs.
const stockRuns = "The stock replica runs"

// holder returns who has the Lease of leader election.
func (e *engine) holder(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	err := e.cluster.Client.Get(ctx, client.ObjectKey{Namespace: rotaNamespace, Name: electionName}, &lease)
	return ptr.Deref(lease.Spec.HolderIdentity, ""), err
}

// finishMigration judges the run.
func (e *engine) finishMigration(ctx context.Context) (*Report, error) {
	e.view.title("the load has ended; checking")
	if err := e.settle(ctx); err != nil {
		return nil, err
	}
	r := &Report{Migrated: true, Members: replicas, Slots: int(e.o.Slots), Rate: e.o.Rate, Delivery: e.o.Delivery}
	if err := e.count(ctx, r); err != nil {
		return nil, err
	}
	e.view.title("stopping the replicas")
	if err := e.stop(ctx, stopLimit); err != nil {
		e.view.log("%v", err)
	}
	all, ended, err := e.journals()
	if err != nil {
		return nil, err
	}
	all, _ = splitDuties(all)
	overlaps := judge.Overlaps(all, ended, e.o.key() == slot.KeyUID)
	r.Overlaps = len(overlaps)
	for _, o := range overlaps[:min(5, len(overlaps))] {
		e.view.log("Overlap: %s by %s (%v to %v) and %s (%v to %v)", o.A.Key.Name, o.A.Pod, o.A.Start, o.A.End, o.B.Pod,
			o.B.Start, o.B.End)
	}
	r.SidesOverlap = e.sides(all, ended)
	for _, run := range e.phases {
		r.Phases = append(r.Phases, Phase{Name: run.name, MachineBusy: run.busy,
			Seconds:    (run.end - run.start).Round(100 * time.Millisecond).Seconds(),
			GapSeconds: longestGap(all, run.start, run.end).Round(time.Millisecond).Seconds()})
	}
	return r, nil
}

// sides counts the reconciles of stock replicas during which a member reconciled something, be it another object.
func (e *engine) sides(all []journal.Reconcile, ended map[string]time.Duration) int {
	stock := map[string]bool{}
	for _, p := range e.all() {
		stock[p.pod] = p.stock
	}
	end := func(r journal.Reconcile) time.Duration {
		if at, ok := ended[r.Pod]; r.End == 0 && ok {
			return at
		}
		return r.End
	}
	slices.SortFunc(all, func(a, b journal.Reconcile) int { return cmp.Compare(a.Start, b.Start) })
	n := 0
	var latest [2]time.Duration // the latest end on each side: members, stock replicas
	for _, r := range all {
		side := 0
		if stock[r.Pod] {
			side = 1
		}
		if latest[1-side] > r.Start {
			n++
		}
		latest[side] = max(latest[side], end(r))
	}
	return n
}

// longestGap is the longest time within a phase in which no reconcile ran.
func longestGap(all []journal.Reconcile, from, to time.Duration) time.Duration {
	slices.SortFunc(all, func(a, b journal.Reconcile) int { return cmp.Compare(a.Start, b.Start) })
	last, longest := from, time.Duration(0)
	for _, r := range all {
		if r.Start > to {
			break
		}
		if r.Start > last {
			longest = max(longest, r.Start-last)
		}
		last = max(last, r.End, r.Start)
	}
	return longest
}

// writeMigration writes the report of a migration for people.
func (r *Report) writeMigration(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d Websites with three children each on %d replicas, under a load of %v changes per second that "+
		"never stopped:\n\n", r.Objects, r.Members, r.Rate)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "\tlongest time without a reconcile\tmachine busy\ttook\t")
	for _, p := range r.Phases {
		_, _ = fmt.Fprintf(t, "%s\t%.1f s\t%s\t%.1f s\t\n", phaseTitles[p.Name], p.GapSeconds, percent(p.MachineBusy),
			p.Seconds)
	}
	_ = t.Flush()
	b.WriteString("\n")
	verdict.Write(&b, r.verdicts())
	_, err := io.WriteString(w, b.String())
	return err
}
