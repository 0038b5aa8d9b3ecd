package footprint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/test/process"
)

// runner measures one case after the other, on one control plane.
type runner struct {
	Options
	cluster *cluster.Cluster
	dir     string
	begun   time.Time
}

// Run measures all cases. It saves after each, so an interruption loses at most one case.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	report, err := load(resultsPath(o.Output), o.parameters())
	if err != nil {
		return nil, err
	}
	cases := slices.DeleteFunc(o.Cases(), func(c Case) bool { return o.Resume && report.find(c) != nil })
	if len(cases) == 0 {
		return report, report.save(o.Output) // renders the page again
	}
	if o.Command, err = process.Command(o.Command); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	r := &runner{Options: o, begun: time.Now()}
	if r.dir, err = os.MkdirTemp("", "rota-footprint-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	r.say("starting a control plane")
	if r.cluster, err = cluster.Open(ctx, operatorNamespace, stockNamespace, rotaNamespace); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.cluster.Close()) }()
	where := r.cluster.Machine(ctx)
	for i, c := range cases {
		r.say("%s (%d of %d)", c, i+1, len(cases))
		begun := time.Now()
		run, err := r.measure(ctx, c)
		if err != nil {
			return report, fmt.Errorf("%s: %w", c, err)
		}
		run.Case, run.Date, run.Machine = c, begun.UTC().Truncate(time.Second), where
		run.Seconds = time.Since(begun).Seconds()
		report.put(*run)
		if err := report.save(o.Output); err != nil {
			return report, err
		}
	}
	return report, report.save(o.Output)
}

// measure measures one case.
func (r *runner) measure(ctx context.Context, c Case) (*Result, error) {
	if err := r.seed(ctx, r.objects(c)); err != nil {
		return nil, fmt.Errorf("make %d Websites: %w", r.objects(c), err)
	}
	if !r.keep {
		if err := r.cluster.Fresh(ctx); err != nil {
			return nil, fmt.Errorf("restart the API server: %w", err)
		}
	}
	switch c.What {
	case Join:
		return r.join(ctx, c)
	case Latency:
		return r.latency(ctx, c)
	default:
		return r.steady(ctx, c)
	}
}

// seed creates Websites until there are n, and has an operator create their children. The measured operators then find
// everything in place.
func (r *runner) seed(ctx context.Context, n int) error {
	if n <= r.cluster.Made() {
		return nil
	}
	missing, begun := n-r.cluster.Made(), time.Now()
	r.say("  making %d Websites", missing)
	if err := r.cluster.Fill(ctx, n); err != nil {
		return err
	}
	crew := &crew{runner: r, c: Case{"seed", Stock, 1}, name: fmt.Sprintf("seed-%d", n), stamp: true}
	defer crew.end()
	if err := crew.start(ctx, 1, ""); err != nil {
		return err
	}
	if _, err := crew.settle(ctx, n); err != nil {
		return err
	}
	there, _, err := r.cluster.Count(ctx, cluster.Sharded())
	if err != nil {
		return err
	}
	took := time.Since(begun)
	r.say("  made them, with children, in %v: %.0f per second", took.Round(time.Second), float64(missing)/took.Seconds())
	for kind, have := range there {
		if have != n {
			return fmt.Errorf("the operator is quiet, and there are %d %s: want %d", have, kind, n)
		}
	}
	return nil
}

func (r *runner) say(format string, args ...any) {
	at := time.Since(r.begun).Round(time.Second)
	_, _ = fmt.Fprintf(r.Progress, "%7s  %s\n", at, fmt.Sprintf(format, args...)) // only progress
}
