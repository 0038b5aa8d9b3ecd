package chaos

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/process"
)

// EnvOperator is the environment variable that carries a member's configuration.
const EnvOperator = "ROTA_CHAOS_OPERATOR"

type operatorConfig struct {
	Host, Token, Rota, Pod, PodUID, Build, Journal string
	CA                                             []byte
	Slots                                          slot.Count
	Delivery                                       sharding.Mode
	Lease                                          time.Duration
}

// workTime is how long a reconcile takes beyond its write.
const workTime = 3 * time.Millisecond

// OperatorMain is a member: a process that reconciles Websites with Rota, has two duties, and obeys its standard input.
// It returns the exit status. It ends when its standard input does, so also when the campaign dies.
func OperatorMain() int {
	var c operatorConfig
	return process.Main(EnvOperator, "`make chaos`", &c, c.run, zap.UseDevMode(true))
}

func (c *operatorConfig) run(ctx context.Context) error {
	w, err := journal.Create(c.Journal)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }() // each record was written when it was made
	stops := &stops{}
	cfg := &rest.Config{
		Host: c.Host, BearerToken: c.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: c.CA}, UserAgent: c.Pod,
	}
	cfg.Wrap(stops.wrap) // below what Rota wraps around it: after the check of a write, before its sending
	mgr, r, err := rig.NewManager(cfg, rota.Options{
		Name: c.Rota, Namespace: rotaNamespace, Slots: c.Slots, Delivery: c.Delivery, LeaseDuration: c.Lease,
		Identity:        rota.Identity{Pod: c.Pod, PodUID: c.PodUID, Container: "manager", Build: c.Build},
		LabelNamespaces: []string{sitesNamespace},
	}, ctrl.Options{Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{sitesNamespace: {}}}})
	if err != nil {
		return err
	}
	err = ctrlrt.NewControllerManagedBy(mgr).For(&webv1.Website{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(&publisher{client: mgr.GetClient(), journal: w, stops: stops, process: processName(c.Journal)})
	if err != nil {
		return err
	}
	d := &duties{client: mgr.GetClient(), journal: w, stops: stops, process: processName(c.Journal)}
	if err := d.declare(mgr, r); err != nil {
		return err
	}
	process.Answer(3, stops.obey)
	return mgr.Start(ctx)
}

// publisher writes the generation of each Website that it has seen into its status. It does not ask for the version
// that it has read, so a write that comes late does harm. It journals each reconcile.
type publisher struct {
	client  client.Client
	journal *journal.Writer
	stops   *stops
	process string
}

// Reconcile implements reconcile.Reconciler.
func (p *publisher) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	start := journal.Now()
	epoch, _ := gate.EpochFrom(ctx)
	var site webv1.Website
	err := p.client.Get(ctx, req.NamespacedName, &site)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	n, end := p.journal.Start(start, req.NamespacedName, string(site.UID), site.Generation, epoch)
	defer end()
	if err != nil || site.Status.ObservedGeneration == site.Generation {
		return reconcile.Result{}, nil
	}
	if err := await.Sleep(ctx, workTime); err != nil {
		return reconcile.Result{}, err
	}
	p.stops.at(atReconcile, req.Name)
	// Each write is unlike all others, and tells who wrote.
	checksum := fmt.Sprint(p.process, " ", n)
	status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d,"checksum":%q}}`, site.Generation, checksum)
	err = p.client.Status().Patch(ctx, &site, client.RawPatch(types.MergePatchType, status))
	return reconcile.Result{}, client.IgnoreNotFound(err)
}
