package rig

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/process"
)

// EnvOperator is the environment variable that carries an Operator. It is older than this package: replicas of earlier
// releases (test/rig/skew) read the same variable, and the same fields.
const EnvOperator = "ROTA_DEMO_OPERATOR"

// Operator configures a replica of the operator under test: examples/website with Rota, a journal and two duties.
type Operator struct {
	// Rota and Namespace name the rota. Sites is the namespace of the Websites, and of what duties write to.
	Rota, Namespace, Sites string
	// Build is the replica's build. Kubeconfig, Journal and Pages are paths: of its credentials, of the journal that it
	// writes, and of the folder into which it publishes. Traffic is a file that replicas of earlier releases write.
	Build, Kubeconfig, Journal, Pages, Traffic string
	Slots                                      slot.Count
	Delivery                                   sharding.Mode
	Lease, Renew, Retry, Write                 time.Duration
	Verbose                                    bool
	// StatusOnly replaces the reconciler of examples/website by one that only writes the status, without asking for the
	// version that it has read: a write that comes late does harm. The status names the writer.
	StatusOnly bool
	// Stock replaces Rota by leader election. Election is its Lease, which a rota holds as well if it is set.
	Stock    bool
	Election string
	// Titles has objects with certain titles go wrong: see TitleHangs and the following. NoDuties leaves out the duties.
	Titles, NoDuties bool
	// Fails is for how many objects of a thousand reconciles fail. Reconciles take Slow times as long; 0 is 1.
	Fails, Slow int
}

// What the reconciles of objects with these titles do, with Operator.Titles: they never return, return an error, panic,
// or end the process.
const (
	TitleHangs  = "hangs"
	TitleFails  = "fails"
	TitlePanics = "panics"
	TitleKills  = "kills"
)

// StockRuns is in the log of a stock replica that waits for its election, or has won it.
const StockRuns = "This replica has leader election, and no Rota"

// workTime is how long a reconcile takes beyond its write with StatusOnly.
const workTime = 3 * time.Millisecond

// OperatorMain is the main function of a replica. It obeys its standard input (see stops.obey), and ends when that
// does: so also when the program that started it dies. It returns the exit status.
func OperatorMain() int {
	var o Operator
	return process.Main(EnvOperator, "package rig", &o, o.run, func(z *zap.Options) { z.Development = o.Verbose })
}

func (o *Operator) run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	w, err := journal.Create(o.Journal)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // each record was written when it was made
	worker := worker{journal: w, stops: &stops{}, process: processName(o.Journal), of: o}
	cfg.QPS = -1
	cfg.Wrap(worker.stops.wrap) // below Rota's own transport: after the check of a write, before it is sent
	mgr, r, err := NewManager(cfg, rota.Options{
		Name: o.Rota, Identity: rota.Identity{Build: o.Build}, Slots: o.Slots, Delivery: o.Delivery,
		LeaseDuration: o.Lease, RenewDeadline: o.Renew, RetryPeriod: o.Retry, WriteTimeout: o.Write,
		LeaderElectionID: o.Election, LabelNamespaces: []string{o.Sites},
	}, o.managerOptions())
	if err != nil {
		return err
	}
	worker.client = mgr.GetClient()
	sites := Controller{For: &webv1.Website{}, Workers: Concurrency / 2}
	if !o.StatusOnly {
		sites, worker.inner = Websites(mgr, website.Pages{Dir: o.Pages})
	}
	if err := sites.AddTo(ctx, mgr, &worker); err != nil {
		return err
	}
	switch {
	case o.Stock:
		ctrl.Log.Info(StockRuns)
	case !o.NoDuties:
		if err := (&duties{worker, o.Sites}).declare(mgr, r); err != nil {
			return err
		}
	}
	process.Answer(3, worker.stops.obey)
	return mgr.Start(ctx)
}

// managerOptions has leader election for a stock replica, with the durations of the rota.
func (o *Operator) managerOptions() (m ctrl.Options) {
	m.Metrics.BindAddress = "0"
	m.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{o.Sites: {}}}
	if !o.Stock {
		return m
	}
	m.LeaderElection, m.LeaderElectionID, m.LeaderElectionNamespace = true, o.Election, o.Namespace
	m.LeaderElectionReleaseOnCancel = true
	if o.Lease > 0 {
		lease := max(o.Lease.Truncate(time.Second), time.Second)
		renew := lease * 2 / 3
		retry := renew / 5
		m.LeaseDuration, m.RenewDeadline, m.RetryPeriod = &lease, &renew, &retry
	}
	return m
}

// worker journals reconciles, and does what the operator's configuration and its standard input ask for.
type worker struct {
	client  client.Client
	journal *journal.Writer
	stops   *stops
	process string
	inner   reconcile.Reconciler // nil: StatusOnly
	of      *Operator
}

// Reconcile implements reconcile.Reconciler.
func (w *worker) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	start := journal.Now()
	epoch, _ := gate.EpochFrom(ctx)
	var site webv1.Website
	if err := w.client.Get(ctx, req.NamespacedName, &site); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	n, end := w.journal.Start(start, req.NamespacedName, string(site.UID), site.Generation, epoch)
	defer end()
	if w.of.Titles {
		if err := goWrong(&site); err != nil {
			return reconcile.Result{}, err
		}
	}
	if w.inner == nil {
		return reconcile.Result{}, w.writeStatus(ctx, &site, n)
	}
	if failing(req.NamespacedName, w.of.Fails) {
		return reconcile.Result{}, errBadBuild
	}
	result, err := w.inner.Reconcile(ctx, req)
	more := time.Duration(max(w.of.Slow-1, 0)) * (journal.Now() - start)
	return result, errors.Join(err, await.Sleep(ctx, more))
}

// writeStatus writes the generation of the Website, and who wrote it. No two writes are alike.
func (w *worker) writeStatus(ctx context.Context, site *webv1.Website, n uint64) error {
	if site.UID == "" || site.Status.ObservedGeneration == site.Generation {
		return nil
	}
	if err := await.Sleep(ctx, workTime); err != nil {
		return err
	}
	w.stops.at(AtReconcile, site.Name)
	checksum := fmt.Sprint(w.process, " ", n)
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d,"checksum":%q}}`, site.Generation, checksum)
	err := w.client.Status().Patch(ctx, site, client.RawPatch(types.MergePatchType, status))
	return client.IgnoreNotFound(err)
}

// goWrong does what an object's title asks for.
func goWrong(site *webv1.Website) error {
	switch site.Spec.Title {
	case TitleHangs:
		select {}
	case TitleFails:
		return fmt.Errorf("the bucket of %s is not there", site.Name)
	case TitlePanics:
		panic("assignment to entry in nil map")
	case TitleKills:
		os.Exit(2)
	}
	return nil
}

// failing is true if reconciles of an object fail in a build that fails for so many of a thousand.
func failing(key types.NamespacedName, thousandths int) bool {
	h := fnv.New32a()
	_, _ = io.WriteString(h, key.String())
	return int(h.Sum32()%1000) < thousandths
}

var errBadBuild = errors.New("this build cannot do it")

// processName is the name of the process with that journal: POD, or POD.NUMBER where processes are started again.
func processName(path string) string { return strings.TrimSuffix(filepath.Base(path), ".journal") }

// PodOf returns the Pod of a process.
func PodOf(process string) string {
	pod, _, _ := strings.Cut(process, ".")
	return pod
}
