package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/bench/meter"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/process"
)

// EnvOperator is the environment variable that carries the configuration of a replica, or of a sharder.
const EnvOperator = "ROTA_BENCH_OPERATOR"

type operatorConfig struct {
	Strategy, Kubeconfig string
	// Name is that of the rota, the leader's Lease or the ring; Pod that of the replica; Namespace the operator's.
	Name, Pod, Namespace string
	// Dir is the folder of the published pages, and of other files.
	Dir string
	// Number is the replica's, from 0, Of how many there are.
	Number, Of int
	// Port is that of the sharder's webhook; 0: it is a replica.
	Port int
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
	// Working is set if it is the leader or holds its shard's Lease, and otherwise if it has started.
	Working bool `json:"working"`
	// Settled is set if a member owns slots, all of them are open, and none moves; Members is how many there are.
	Settled bool `json:"settled"`
	Members int  `json:"members"`
}

func newReading() reading { return reading{Counts: meter.NewCounts()} }

func (r *reading) add(other reading) {
	r.Counts.Add(other.Counts)
	r.Reconciles += other.Reconciles
}

// The questions.
const (
	askReading  = "reading"
	askResident = "resident" // the bytes that a garbage collection leaves; the peak of the heap begins anew
)

// probe answers the questions about a process.
type probe struct {
	built
	meter      *meter.Meter
	reconciles atomic.Int64
}

func (p *probe) answer(question string) any {
	if question == askResident {
		live := meter.LiveHeap()
		p.meter.Reset()
		return live
	}
	return p.reading()
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
	p := &probe{meter: meter.New(c.Namespace)}
	p.meter.Watch(cfg)
	go p.meter.Run(ctx)
	if c.Port != 0 {
		p.Manager, err = c.sharderManager(ctx, cfg)
	} else {
		err = c.replica(ctx, p, cfg)
	}
	if err != nil {
		return err
	}
	process.Answer(0, func(question string) string {
		text, err := json.Marshal(p.answer(question))
		if err != nil {
			panic(err) // it has plain fields
		}
		return question + " " + string(text)
	})
	return p.Start(ctx)
}

// errAgain has the queue try again with its backoff, as most operators do. The example operator tries again after a
// fixed time where its cache is behind; with labels that a sharder writes, one after the other, it would do so for
// long, and keep the API server busy.
var errAgain = errors.New("the cache is behind")

// replica makes a strategy's manager with the operator's controller.
func (c *operatorConfig) replica(ctx context.Context, p *probe, cfg *rest.Config) (err error) {
	s, ok := find(c.Strategy)
	if !ok {
		return fmt.Errorf("there is no strategy %q", c.Strategy)
	}
	if p.built, err = s.build(ctx, c, cfg, ctrl.Options{}); err != nil {
		return err
	}
	sites, reconciler := rig.Websites(p.Manager, website.Pages{Dir: c.Dir})
	measured := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		defer p.reconciles.Add(1)
		result, err := reconciler.Reconcile(meter.Reconcile(ctx), req)
		if err == nil && result.RequeueAfter > 0 {
			err = errAgain
		}
		return result, err
	})
	if p.add == nil {
		return sites.AddTo(ctx, p.Manager, measured)
	}
	return p.add(ctx, sites, measured)
}
