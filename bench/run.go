package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/process"
)

// children is how many objects the operator makes of a Website.
const children = 3

// Options say what to measure.
type Options struct {
	// Objects is the number of objects: of four, one is a Website, and three are its children.
	Objects int
	// Replicas are the numbers of replicas. Each is measured by itself.
	Replicas []int
	// Strategies are compared.
	Strategies []Strategy
	// Scenarios are the names of those to measure, which begin with start; nil: all.
	Scenarios []string
	// Rounds is how often each strategy lives.
	Rounds int
	// Rate is how many Websites change per second, Window how long the steady load lasts.
	Rate   float64
	Window time.Duration
	// Quiet is how long nothing must happen before a scenario begins.
	Quiet time.Duration
	// Output is where the results go, as JSON. Those of other runs with the same parameters stay.
	Output string
	// Progress gets a line for each step.
	Progress io.Writer
	// Command starts a replica: a program that calls OperatorMain, and its arguments. Default: this program.
	Command []string
}

func (o *Options) validate() error {
	switch {
	case o.Objects < 4*10:
		return fmt.Errorf("%d objects: must be at least 40", o.Objects)
	case o.Rate <= 0 || o.Window <= 0 || o.Quiet <= 0:
		return errors.New("rate, window and quiet: must be above 0")
	case o.Rounds < 1:
		return fmt.Errorf("%d rounds: must be at least 1", o.Rounds)
	case len(o.Strategies) == 0:
		return errors.New("strategies: name at least one")
	case len(o.Replicas) == 0 || slices.ContainsFunc(o.Replicas, func(n int) bool { return n < 1 || n > 20 }):
		return fmt.Errorf("replicas %v: each must be from 1 to 20", o.Replicas)
	}
	known := scenarios()
	for _, name := range o.Scenarios {
		if !slices.ContainsFunc(known, func(s scenario) bool { return s.name == name }) {
			var all []string
			for _, s := range known {
				all = append(all, s.name)
			}
			return fmt.Errorf("scenario %q: must be one of %s", name, strings.Join(all, ", "))
		}
	}
	return nil
}

func (o *Options) parameters() Parameters {
	return Parameters{
		Objects: o.Objects, Rate: o.Rate, WindowSeconds: o.Window.Seconds(), WebsiteBytes: cluster.WebsiteBytes,
	}
}

// runner lets strategies live, on one control plane.
type runner struct {
	Options
	cluster *cluster.Cluster
	waits   *waits
	dir     string
	begun   time.Time
	changed int
}

// Run measures. It saves after each life.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	report, err := loadFor(o.Output, o.parameters())
	if err != nil {
		return nil, err
	}
	if o.Command, err = process.Command(o.Command); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	r := &runner{Options: o, begun: time.Now(), waits: newWaits()}
	if r.dir, err = os.MkdirTemp("", "rota-bench-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	r.say("starting a control plane")
	if r.cluster, err = cluster.Open(ctx, "bench"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.cluster.Close()) }()
	if err := r.seed(ctx); err != nil {
		return nil, fmt.Errorf("make %d objects: %w", o.Objects, err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := r.waits.watch(watching, r.cluster); err != nil {
		return nil, err
	}
	report.Machine = r.cluster.Machine(ctx)
	report.Date = time.Now().UTC().Truncate(time.Second)
	for round := range o.Rounds {
		for _, n := range o.Replicas {
			for _, s := range o.Strategies {
				results, err := r.life(ctx, s, n)
				if err != nil {
					return report, fmt.Errorf("%s with %d replicas: %w", s.Name, n, err)
				}
				report.put(round == 0, s.Name, n, results)
				if err := report.Save(o.Output); err != nil {
					return report, err
				}
			}
		}
	}
	return report, nil
}

// life lets a strategy live.
func (r *runner) life(ctx context.Context, s Strategy, n int) (results []Result, err error) {
	r.say("%s with %d replicas", s.Name, n)
	c := &crew{runner: r, strategy: s, name: fmt.Sprintf("%s-%d", s.Name, n), size: n}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	for _, sc := range scenarios() {
		switch {
		case r.Scenarios != nil && !slices.Contains(r.Scenarios, sc.name) && sc.name != "start":
			continue
		case sc.never != nil && sc.never(s) || sc.name == "crash" && n < 2:
			continue
		}
		res, err := r.measure(ctx, c, sc)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sc.name, err)
		}
		results = append(results, *res)
		r.say("  %s", res)
	}
	return results, nil
}

// after is how long the load goes on after a scenario.
const after = 2 * time.Second

// reconcileLimit is how long a change may take to be reconciled after a scenario before it counts as missed.
const reconcileLimit = 30 * time.Second

// measure measures a scenario.
func (r *runner) measure(ctx context.Context, c *crew, sc scenario) (*Result, error) {
	res := &Result{Strategy: c.strategy.Name, Replicas: c.size, Scenario: sc.name}
	then, err := c.total(ctx)
	if err != nil {
		return nil, err
	}
	api, etcd, err := r.cluster.ServerCPU(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if sc.load {
		loaded, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- r.load(loaded, r.Rate) }()
		at, err := sc.do(ctx, c)
		if err != nil {
			return nil, err
		}
		res.Took = at.Sub(begun).Seconds()
		if err := await.Sleep(ctx, after); err != nil {
			return nil, err
		}
		stop()
		if err := <-ended; err != nil {
			return nil, err
		}
		for limit := time.Now().Add(reconcileLimit); r.waits.waiting() > 0 && time.Now().Before(limit); {
			if err := await.Sleep(ctx, pollEvery); err != nil {
				return nil, err
			}
		}
		waits, missed := r.waits.take()
		res.setWaits(waits, missed)
	} else {
		at, err := sc.do(ctx, c)
		if err != nil {
			return nil, err
		}
		res.Took = at.Sub(begun).Seconds()
	}
	res.Seconds = time.Since(begun).Seconds()
	if err := c.quieten(ctx); err != nil {
		return nil, err
	}
	now, err := c.total(ctx)
	if err != nil {
		return nil, err
	}
	did := now.Since(then.Counts)
	res.Reconciles, res.CPU, res.Bytes = now.Reconciles-then.Reconciles, did.CPUSeconds, did.Bytes
	res.Writes, res.Requests = objectWrites(did.Beside), did.Requests
	res.PeakHeap, res.Watches = now.PeakHeap, now.Watches
	if res.APIServer, res.Etcd, err = r.cluster.ServerCPU(ctx); err != nil {
		return nil, err
	}
	res.APIServer -= api
	res.Etcd -= etcd
	res.LiveHeap, res.Greatest, err = c.resident(ctx)
	return res, err
}

// seed makes the Websites, and has an operator create their children.
func (r *runner) seed(ctx context.Context) (err error) {
	n := r.Objects / (1 + children)
	r.say("making %d Websites", n)
	if err := r.cluster.Fill(ctx, n); err != nil {
		return err
	}
	s, _ := find("leader")
	c := &crew{runner: r, strategy: s, name: "seed", stamp: true, size: 1}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if err := c.open(ctx); err != nil {
		return err
	}
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	if err := c.quieten(ctx); err != nil {
		return err
	}
	there, _, err := r.cluster.Count(ctx)
	if err != nil {
		return err
	}
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
