package demo

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/process"
)

// OperatorArgument makes the program rota-demo a replica.
const OperatorArgument = "demo-operator"

// EnvOperator is the environment variable that carries a replica's configuration.
const EnvOperator = "ROTA_DEMO_OPERATOR"

type operatorConfig struct {
	Build, Kubeconfig, Journal, Pages string
	Slots                             slot.Count
	Delivery                          sharding.Mode
	Lease, Renew, Retry, Write        time.Duration
	Verbose                           bool
	// Stock says that the replica has leader election instead of Rota. Election is the Lease that a rota holds; "": none.
	Stock    bool
	Election string
	// Traffic is the path of a file that a replica of an older release writes.
	Traffic string
	// Metrics is where it serves its metrics; "": nowhere.
	Metrics string
	// Fails is for how many objects of a thousand its reconciles fail, and Slow how many times as long they take as they
	// would; 0: as long.
	Fails, Slow int
	// work is how much longer each reconcile takes than it would. It is told: see sayWork.
	work *atomic.Int64
}

// OperatorMain is a replica: the Website operator with Rota, and a journal of its reconciles. It returns the exit
// status. It ends when its standard input does, so also when the demo dies.
func OperatorMain() int {
	var c operatorConfig
	var work atomic.Int64
	process.Answer(3, func(line string) string {
		if text, ok := strings.CutPrefix(line, sayWork); ok {
			if d, err := time.ParseDuration(text); err == nil {
				work.Store(int64(d))
			}
		}
		return ""
	})
	c.work = &work
	return process.Main(EnvOperator, "`rota-demo`", &c, c.run, func(o *zap.Options) { o.Development = c.Verbose })
}

func (c *operatorConfig) run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	w, err := journal.Create(c.Journal)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // each record was written when it was made
	mgr, r, err := rig.NewManager(cfg, rota.Options{
		Name: Name, Identity: rota.Identity{Build: c.Build}, Slots: c.Slots, Delivery: c.Delivery,
		LeaseDuration: c.Lease, RenewDeadline: c.Renew, RetryPeriod: c.Retry, WriteTimeout: c.Write,
		LeaderElectionID: c.Election,
	}, c.managerOptions())
	if err != nil {
		return err
	}
	sites, inner := rig.Websites(mgr, website.Pages{Dir: c.Pages})
	journaled := &journaled{client: mgr.GetClient(), journal: w, inner: inner, work: c.work, fails: c.Fails, slow: c.Slow}
	if err := sites.AddTo(ctx, mgr, journaled); err != nil {
		return err
	}
	if c.Stock {
		ctrl.Log.Info(stockRuns)
		return mgr.Start(ctx)
	}
	if err := c.declareDuties(r, mgr.GetClient(), mgr.GetAPIReader(), w); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// managerOptions has leader election for a stock replica, with the durations of the rota.
func (c *operatorConfig) managerOptions() (o ctrl.Options) {
	o.Metrics.BindAddress = cmp.Or(c.Metrics, "0")
	if !c.Stock {
		return o
	}
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, electionName, Namespace
	o.LeaderElectionReleaseOnCancel = true
	if c.Lease > 0 {
		lease := max(c.Lease.Truncate(time.Second), time.Second)
		renew := lease * 2 / 3
		retry := renew / 5
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lease, &renew, &retry
	}
	return o
}

// journaled records each reconcile of the one that it wraps.
type journaled struct {
	client  client.Reader
	journal *journal.Writer
	inner   reconcile.Reconciler
	work    *atomic.Int64
	fails   int
	slow    int
}

// Reconcile implements reconcile.Reconciler.
func (j *journaled) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	start := journal.Now()
	epoch, _ := gate.EpochFrom(ctx)
	var site webv1.Website
	if err := j.client.Get(ctx, req.NamespacedName, &site); err != nil {
		site = webv1.Website{}
	}
	_, end := j.journal.Start(start, req.NamespacedName, string(site.UID), site.Generation, epoch)
	defer end()
	if err := await.Sleep(ctx, time.Duration(j.work.Load())); err != nil {
		return reconcile.Result{}, err
	}
	if failing(req.NamespacedName, j.fails) {
		return reconcile.Result{}, errBadBuild
	}
	result, err := j.inner.Reconcile(ctx, req)
	more := time.Duration(max(j.slow-1, 0)) * (journal.Now() - start)
	return result, errors.Join(err, await.Sleep(ctx, more))
}
