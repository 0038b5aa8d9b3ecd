package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/bench/drainlabel"
	"github.com/rota-dev/rota/bench/meter"
	"github.com/rota-dev/rota/test/process"
	"github.com/rota-dev/rota/test/stage"
)

// EnvOperator is the environment variable that carries the configuration of a replica, or of a sharder.
const EnvOperator = "ROTA_BENCH_OPERATOR"

type operatorConfig struct {
	Strategy, Workload, Kubeconfig string
	// Name is that of the rota, the leader's Lease or the ring; Pod that of the replica; Namespace the operator's.
	Name, Pod, Namespace string
	// Pages is the folder of the published pages.
	Pages string
	// Number is the replica's, from 0, Of how many there are.
	Number, Of int
	// Stamp has it stamp what it creates.
	Stamp bool
	// Strip has the cache drop managed fields.
	Strip bool
	// Poll is the time between two lists, where the strategy polls.
	Poll time.Duration
	// Profile is a file for a profile from the beginning; "": there is none.
	Profile string
	// Port is that of the sharder's webhook; 0: it is a replica.
	Port int

	workload Workload
}

// OperatorMain runs a replica or a sharder, measured. It returns the exit status. It ends when its standard input does,
// so it ends too if the process that started it dies.
func OperatorMain() int {
	var c operatorConfig
	return process.Main(EnvOperator, "`make bench`", &c, c.run)
}

// reading is a process's report of itself. Counts begin with the process.
type reading struct {
	meter.Counts
	Reconciles int64 `json:"reconciles"`
	// Working says that it is the leader or holds its shard's Lease, and otherwise that it has started.
	Working bool `json:"working"`
	// Settled says of a member that it owns slots, all of them are open, and none moves; Members is how many there are.
	Settled bool `json:"settled"`
	Members int  `json:"members"`
}

// The questions.
const (
	askReading  = "reading"
	askResident = "resident"
	askReset    = "reset" // reset the peak of the heap
	askQueues   = "queues"
	askProfile  = "profile" // and a file; none ends it. The answer is an error, or empty
)

// probe answers the questions about a process.
type probe struct {
	built
	profiler   profiler
	meter      *meter.Meter
	reconciles atomic.Int64
}

func (p *probe) answer(question, about string) any {
	switch question {
	case askProfile:
		if err := p.profiler.begin(about); err != nil {
			return err.Error()
		}
		return ""
	case askReading:
		return p.reading()
	case askResident:
		return meter.LiveHeap()
	case askQueues:
		return readQueues()
	case askReset:
		p.meter.Reset()
	}
	return struct{}{}
}

func (p *probe) reading() reading {
	r := reading{Counts: p.meter.Counts(), Reconciles: p.reconciles.Load()}
	if p.status == nil {
		select {
		case <-p.Elected():
			r.Working = true
		default:
		}
		return r
	}
	s := p.status()
	r.Working, r.Members = s.ID != "", s.Members
	r.Settled = !s.Open.Empty() && s.Open.Len() == s.Owned.Len() && s.Coming.Empty() && s.Going.Empty() &&
		s.Unowned.Empty()
	return r
}

func (c *operatorConfig) run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1 // as controller-runtime sets it
	if c.workload, err = ParseWorkload(c.Workload); err != nil {
		return err
	}
	p := &probe{meter: meter.New(c.Namespace)}
	p.meter.Watch(cfg)
	go p.meter.Run(ctx)
	if c.Port != 0 {
		var mgr manager.Manager
		if mgr, err = c.sharder(ctx, cfg); err != nil {
			return err
		}
		p.built = built{Manager: mgr}
	} else if err := c.replica(ctx, p, func(o ctrl.Options) (built, error) {
		s, ok := find(c.Strategy)
		if !ok {
			return built{}, fmt.Errorf("there is no strategy %q", c.Strategy)
		}
		return s.manager(ctx, c, cfg, o)
	}); err != nil {
		return err
	}
	if err := p.profiler.begin(c.Profile); err != nil {
		return err
	}
	process.Answer(0, func(line string) string {
		question, about, _ := strings.Cut(line, " ")
		text, err := json.Marshal(p.answer(question, about))
		if err != nil {
			panic(err) // it has plain fields
		}
		return question + " " + string(text)
	})
	return errors.Join(p.Start(ctx), p.profiler.begin(""))
}

// errAgain has the queue try again with its backoff, as most operators do. The example operator tries again after a
// fixed time where its cache is behind; with labels that a sharder writes, one after the other, it would do so for
// long, and keep the API server busy.
var errAgain = errors.New("the cache is behind")

// replica adds the operator's controllers to a strategy's manager.
func (c *operatorConfig) replica(ctx context.Context, p *probe, build func(ctrl.Options) (built, error)) (err error) {
	var o ctrl.Options
	if c.Stamp {
		o.NewClient = cluster.StampingClient
	}
	if c.Strip {
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
	}
	if p.built, err = build(o); err != nil {
		return err
	}
	add := p.add
	if add == nil {
		add = func(ctx context.Context, of stage.Controller, r reconcile.Reconciler) error {
			return of.AddTo(ctx, p.Manager, r)
		}
	}
	for _, its := range c.workload.controllers(p.Manager, c) {
		measured := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			defer p.reconciles.Add(1)
			result, err := its.reconciler.Reconcile(meter.Reconcile(ctx), req)
			if err == nil && result.RequeueAfter > 0 {
				err = errAgain
			}
			return result, err
		})
		if err := add(ctx, its.Controller, measured); err != nil {
			return err
		}
	}
	return nil
}

// sharder returns the sharder of a ring.
func (w *Workload) sharder(ring, namespace string) *drainlabel.Sharder {
	kinds := w.gvks()
	return &drainlabel.Sharder{Ring: ring, Namespace: namespace, Main: kinds[0], Children: kinds[1:]}
}
