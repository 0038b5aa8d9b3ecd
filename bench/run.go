package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rota-dev/rota/bench/meter"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/process"
)

// runner lets strategies live, on one control plane.
type runner struct {
	Options
	cluster  *plane
	load     *rig.Load
	waits    *waits
	dir      string
	begun    time.Time
	revision string // of the repository
	changed  int
}

// Run measures. It saves after each life.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	report, err := Load(o.Output)
	if err != nil {
		return nil, err
	}
	if o.Command, err = process.Command(o.Command); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	r := &runner{Options: o, waits: newWaits(), begun: time.Now()}
	if r.dir, err = os.MkdirTemp("", "rota-bench-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	r.say("starting a control plane")
	if r.cluster, err = openPlane(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.cluster.Close()) }()
	if err := r.seed(ctx); err != nil {
		return nil, fmt.Errorf("make %d objects: %w", o.Objects, err)
	}
	series := report.with(o.parameters())
	series.Machine = r.cluster.machine(ctx)
	r.revision = series.Machine.Revision
	series.Date = time.Now().UTC().Truncate(time.Second)
	for round := range o.Rounds {
		for _, n := range o.Replicas {
			for _, s := range o.Strategies {
				results, err := r.life(ctx, s, n)
				if err != nil {
					return report, fmt.Errorf("%s with %d replicas: %w", s.Name, n, err)
				}
				series.put(round == 0, s.Name, n, results)
				if err := report.Save(o.Output); err != nil {
					return report, err
				}
			}
		}
	}
	return report, nil
}

// life lets a strategy live. The API server starts anew, so that it has nothing of another life in its memory.
func (r *runner) life(ctx context.Context, s Strategy, n int) (results []Result, err error) {
	r.say("%s with %d replicas", s.Name, n)
	ctx, end := context.WithCancel(ctx)
	defer end()
	c := r.newCrew(s, n)
	if err := r.cluster.restart(ctx); err != nil {
		return nil, err
	}
	if err := c.waits.watch(ctx, r.cluster.Cluster); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	for _, sc := range scenarios {
		if !r.wants(sc, s, len(c.replicas)) {
			continue
		}
		res, err := c.measure(ctx, sc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sc.name, err)
		}
		results = append(results, *res)
		r.say("  %s", res)
	}
	return results, nil
}

const (
	// after is how long the load goes on after a scenario.
	after = 2 * time.Second
	// reconcileLimit is how long a change may take to be reconciled after that before it counts as missed.
	reconcileLimit = 30 * time.Second
)

// measure measures a scenario.
func (c *crew) measure(ctx context.Context, sc scenario) (*Result, error) {
	res := &Result{Strategy: c.strategy.Name, Replicas: c.size, Scenario: sc.name, Revision: c.revision}
	then, err := c.total(ctx)
	if err != nil {
		return nil, err
	}
	api, etcd, err := c.cluster.processorTime(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if res.Took, err = c.run(ctx, sc); err != nil {
		return nil, err
	}
	if sc.loaded {
		for end := time.Now().Add(reconcileLimit); c.waits.waiting() > 0 && time.Now().Before(end); {
			if err := await.Sleep(ctx, pollEvery); err != nil {
				return nil, err
			}
		}
		res.setWaits(c.waits.take())
	}
	if err := c.quieten(ctx); err != nil {
		return nil, err
	}
	now, err := c.total(ctx)
	if err != nil {
		return nil, err
	}
	did := now.Since(then.Counts)
	res.Reconciles, res.CPU, res.Bytes = now.Reconciles-then.Reconciles, did.CPUSeconds, did.Bytes
	res.Writes, res.Listed, res.Requests = objectWrites(did.Beside), objectRequests(did.Requests, "list"), did.Requests
	res.PeakHeap, res.Watches = now.PeakHeap, now.Watches
	if res.APIServer, res.Etcd, err = c.cluster.processorTime(ctx); err != nil {
		return nil, err
	}
	res.APIServer, res.Etcd, res.Seconds = res.APIServer-api, res.Etcd-etcd, time.Since(begun).Seconds()
	if res.LiveHeap, res.Greatest, err = c.resident(ctx); err != nil {
		return nil, err
	}
	res.ServerHeap, err = c.cluster.heap(ctx)
	return res, err
}

// run runs a scenario, under load if it has one, and returns for how many seconds.
func (c *crew) run(ctx context.Context, sc scenario) (took float64, err error) {
	begun := time.Now()
	work, ctx := errgroup.WithContext(ctx)
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	if sc.loaded {
		work.Go(func() error { return c.change(loaded) })
	}
	work.Go(func() error {
		defer stop()
		at, err := sc.do(ctx, c)
		if took = at.Sub(begun).Seconds(); err != nil || !sc.loaded {
			return err
		}
		return await.Sleep(ctx, after)
	})
	return took, work.Wait()
}

// change changes Websites at the rate until ctx ends, and waits for the answers.
func (r *runner) change(ctx context.Context) error {
	interval, sending := time.Duration(float64(time.Second)/r.Rate), context.WithoutCancel(ctx)
	r.load.Tick(ctx, func() time.Duration { return interval }, func() { r.load.Start(sending, r.next, r.load.Update) })
	r.load.Wait()
	if n := r.load.Counts(); n.Failures > 0 {
		return fmt.Errorf("%d changes failed: %w", n.Failures, n.Err)
	}
	return nil
}

// next chooses the Website to change. The stride is coprime to round numbers of Websites, so each is changed once
// before any is changed again.
func (r *runner) next(_ *rand.Rand, sites []*rig.Site) *rig.Site {
	r.changed++
	return sites[r.changed*7919%len(sites)]
}

// objectRequests counts the requests for objects with one of the verbs; none: with any.
func objectRequests(by map[string]int, verbs ...string) (n int) {
	for what, count := range by {
		if slices.Contains(resources, meter.Resource(what)) && (verbs == nil || slices.Contains(verbs, meter.Verb(what))) {
			n += count
		}
	}
	return n
}

func objectWrites(by map[string]int) int { return objectRequests(by, meter.Writing...) }

func (r *runner) say(format string, args ...any) {
	at := time.Since(r.begun).Round(time.Second)
	_, _ = fmt.Fprintf(r.Progress, "%7s  %s\n", at, fmt.Sprintf(format, args...)) // only progress
}
