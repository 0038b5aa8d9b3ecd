package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/bench/drainlabel"
	"github.com/rota-dev/rota/bench/meter"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/process"
)

// operatorNamespace is that of the operators.
const operatorNamespace = "bench"

// Options say what to measure.
type Options struct {
	// Workload is what the replicas run.
	Workload Workload
	// Objects is the number of objects, children included.
	Objects int
	// Replicas are the numbers of replicas. Each is measured by itself.
	Replicas []int
	// Strategies are compared.
	Strategies []Strategy
	// Scenarios are the names of those to measure, beside start; nil: all that need not be asked for.
	Scenarios []string
	// Strip has the replicas' caches drop managed fields.
	Strip bool
	// Rounds is how often each strategy lives.
	Rounds int
	// Rate is how many main objects change per second, Window how long the steady load lasts.
	Rate   float64
	Window time.Duration
	// Quiet is how long nothing must happen before a scenario begins.
	Quiet time.Duration
	// Profiles is a folder for profiles of the processor: of each replica and scenario, and of the API server in the
	// first seconds of each; "": there are none. They take time themselves.
	Profiles string
	// Output is where the results go, as JSON. Those of other strategies, numbers of replicas and parameters stay.
	Output string
	// Progress gets a line for each step.
	Progress io.Writer
	// Command starts a replica: a program that calls OperatorMain, and its arguments. Default: this program.
	Command []string

	poll time.Duration // between two lists of a strategy that polls; 0: pollPeriod
}

func (o *Options) validate() error {
	switch {
	case o.Workload.workload == nil:
		return errors.New("workload: name one")
	case o.mains() < 10:
		return fmt.Errorf("%d objects: must be at least %d", o.Objects, 10*o.Workload.perMain())
	case o.Rate <= 0 || o.Window <= 0 || o.Quiet <= 0:
		return errors.New("rate, window and quiet: must be above 0")
	case o.Rounds < 1:
		return fmt.Errorf("%d rounds: must be at least 1", o.Rounds)
	case len(o.Strategies) == 0:
		return errors.New("strategies: name at least one")
	case len(o.Replicas) == 0 || slices.ContainsFunc(o.Replicas, func(n int) bool { return n < 1 || n > 20 }):
		return fmt.Errorf("replicas %v: each must be from 1 to 20", o.Replicas)
	}
	if o.Output != "" {
		if _, err := os.Stat(filepath.Dir(o.Output)); err != nil {
			return fmt.Errorf("output: %w", err)
		}
	}
	if o.Profiles != "" {
		if err := os.MkdirAll(o.Profiles, 0o755); err != nil {
			return fmt.Errorf("profiles: %w", err)
		}
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
		if _, floods := o.Workload.workload.(flooder); name == "flood" && !floods {
			return fmt.Errorf("scenario flood: workload %s has one controller: choose neighbors", o.Workload.Name)
		}
	}
	return nil
}

// mains is the number of main objects.
func (o *Options) mains() int { return o.Objects / o.Workload.perMain() }

func (o *Options) parameters() Parameters {
	return Parameters{
		Workload: o.Workload.Name, Objects: o.Objects, Rate: o.Rate, WindowSeconds: o.Window.Seconds(), Strip: o.Strip,
	}
}

// wants says whether to measure a scenario with so many replicas.
func (o *Options) wants(sc scenario, s Strategy, replicas int) bool {
	switch {
	case sc.name == "start":
		return true
	case o.Scenarios == nil && sc.named, o.Scenarios != nil && !slices.Contains(o.Scenarios, sc.name):
		return false
	case sc.never != nil && sc.never(s), replicas < sc.least:
		return false
	}
	return true
}

// runner lets strategies live, on one control plane.
type runner struct {
	Options
	cluster *cluster.Cluster
	waits   *waits
	// follow has the waits watch anew, until the run ends.
	follow func() error
	// sharded are lists of the kinds, by their names in counts of requests.
	sharded map[string]client.ObjectList
	dir     string
	begun   time.Time
	lives   int
	// revision is that of the repository.
	revision string
	changed  atomic.Int64
}

// Run measures. It saves after each life.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	report, err := Load(o.Output)
	if errors.Is(err, fs.ErrNotExist) {
		report, err = &Report{}, nil
	}
	if err != nil {
		return nil, err
	}
	if o.Command, err = process.Command(o.Command); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	o.poll = cmp.Or(o.poll, pollPeriod)
	r := &runner{Options: o, begun: time.Now(), waits: newWaits(), sharded: o.Workload.resources()}
	if r.dir, err = os.MkdirTemp("", "rota-bench-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	r.say("starting a control plane")
	if r.cluster, err = cluster.Open(ctx, operatorNamespace, created); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.cluster.Close()) }()
	if err := r.seed(ctx); err != nil {
		return nil, fmt.Errorf("make %d objects: %w", o.Objects, err)
	}
	unfollow := func() {}
	r.follow = func() error {
		unfollow()
		var watching context.Context
		watching, unfollow = context.WithCancel(ctx)
		return r.waits.watch(watching, r.cluster, r.Workload)
	}
	defer func() { unfollow() }()
	if err := r.follow(); err != nil {
		return nil, err
	}
	series := report.with(o.parameters())
	series.Machine = r.cluster.Machine(ctx)
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

// life lets a strategy live.
func (r *runner) life(ctx context.Context, s Strategy, n int) (results []Result, err error) {
	r.say("%s with %d replicas", s.Name, n)
	r.lives++
	if err := r.fresh(ctx); err != nil {
		return nil, err
	}
	c := &crew{runner: r, strategy: s, name: crewName(s, n), size: n}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	for _, sc := range scenarios() {
		if !r.wants(sc, s, len(c.replicas)) {
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

// fresh starts the API server anew, so that a life finds nothing of another one in its memory.
func (r *runner) fresh(ctx context.Context) error {
	if err := r.cluster.Crash(ctx); err != nil {
		return err
	}
	return r.follow()
}

// after is how long the load goes on after a scenario.
const after = 2 * time.Second

// reconcileLimit is how long a change may take to be reconciled after a scenario before it counts as missed.
const reconcileLimit = 30 * time.Second

// measure measures a scenario.
func (r *runner) measure(ctx context.Context, c *crew, sc scenario) (*Result, error) {
	res := &Result{Strategy: c.strategy.Name, Replicas: c.size, Scenario: sc.name, Revision: r.revision}
	then, err := c.total(ctx)
	if err != nil {
		return nil, err
	}
	api, etcd, err := r.cluster.ServerCPU(ctx)
	if err != nil {
		return nil, err
	}
	profiled, err := c.profile(ctx, sc)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if sc.load != nil {
		var fail context.CancelCauseFunc
		ctx, fail = context.WithCancelCause(ctx)
		defer fail(nil)
		loaded, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- c.load(loaded, r.Rate, sc.load, fail) }()
		at, err := sc.do(ctx, c, res)
		if err != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
		res.Took = at.Sub(begun).Seconds()
		if err := await.Sleep(ctx, after); err != nil {
			return nil, err
		}
		stop()
		if err := <-ended; err != nil {
			return nil, err
		}
		limit := reconcileLimit
		if c.strategy.Polls {
			limit += r.poll
		}
		if err := c.reconciled(ctx, limit); err != nil {
			return nil, err
		}
		waits, missed := r.waits.take()
		res.setWaits(waits, missed)
	} else {
		at, err := sc.do(ctx, c, res)
		if err != nil {
			return nil, err
		}
		res.Took = at.Sub(begun).Seconds()
	}
	if err := profiled(); err != nil {
		return nil, err
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
	res.Writes, res.Written, res.Requests = c.objectWrites(did.Beside), c.objectWrites(did.Requests), did.Requests
	res.Listed = r.objectRequests(did.Requests, "list")
	res.PeakHeap, res.Watches = now.PeakHeap, now.Watches
	if res.APIServer, res.Etcd, err = r.cluster.ServerCPU(ctx); err != nil {
		return nil, err
	}
	res.Seconds = time.Since(begun).Seconds()
	if !sc.another {
		res.APIServer -= api
	}
	res.Etcd -= etcd
	if res.LiveHeap, res.Greatest, err = c.resident(ctx); err != nil {
		return nil, err
	}
	if res.ServerHeap, err = r.cluster.ServerHeap(ctx); err != nil || sc.clean == nil {
		return res, err
	}
	if err := sc.clean(ctx, c); err != nil {
		return nil, err
	}
	return res, c.quieten(ctx)
}

// reconciled waits until all changes are reconciled, at most for a time.
func (r *runner) reconciled(ctx context.Context, limit time.Duration) error {
	for end := time.Now().Add(limit); r.waits.waiting() > 0 && time.Now().Before(end); {
		if err := await.Sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
	return nil
}

// objectRequests counts the requests for objects of the workload's kinds with one of the verbs; none: with any.
func (r *runner) objectRequests(by map[string]int, verbs ...string) (n int) {
	for what, c := range by {
		if r.sharded[meter.Resource(what)] != nil && (verbs == nil || slices.Contains(verbs, meter.Verb(what))) {
			n += c
		}
	}
	return n
}

func (r *runner) objectWrites(by map[string]int) int { return r.objectRequests(by, meter.Writing...) }

// seed makes the objects.
func (r *runner) seed(ctx context.Context) (err error) {
	n := r.mains()
	r.say("making %d objects", n*r.Workload.perMain())
	if err := r.Workload.fill(ctx, r, n); err != nil {
		return err
	}
	there, err := r.cluster.Count(ctx, r.sharded)
	if err != nil {
		return err
	}
	for kind, have := range there {
		if have != n {
			return fmt.Errorf("there are %d %s: want %d", have, kind, n)
		}
	}
	return nil
}

// placing returns what labels a new object as the sharders of all lives would, which begin with it.
func (r *runner) placing() func(obj client.Object, child bool) {
	type first struct {
		*drainlabel.Sharder
		ring drainlabel.Ring
	}
	var all []first
	for _, s := range r.Strategies {
		for _, n := range r.Replicas {
			if !s.Labels {
				continue
			}
			name := crewName(s, n)
			var shards []string
			for i := range n {
				shards = append(shards, firstPod(name, i))
			}
			all = append(all, first{r.Workload.sharder(name, r.cluster.Namespace), drainlabel.NewRing(shards...)})
		}
	}
	return func(obj client.Object, child bool) {
		for _, of := range all {
			of.Place(obj, child, of.ring)
		}
	}
}

// crewName is the name of a strategy's rota, Lease or ring, and firstPod that of its i-th replica to begin with.
func crewName(s Strategy, replicas int) string { return fmt.Sprintf("%s-%d", s.Name, replicas) }

func firstPod(crew string, i int) string { return fmt.Sprintf("%s-%d", crew, i) }

func (r *runner) say(format string, args ...any) {
	at := time.Since(r.begun).Round(time.Second)
	_, _ = fmt.Fprintf(r.Progress, "%7s  %s\n", at, fmt.Sprintf(format, args...)) // only progress
}
