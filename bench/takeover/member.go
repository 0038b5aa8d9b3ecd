package takeover

import (
	"context"
	"encoding/json"
	"net/http"
	_ "net/http/pprof" // on loopback, where asked for
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/process"
	"github.com/rota-dev/rota/test/stage"
)

// EnvMember is the environment variable that carries a member's configuration.
const EnvMember = "ROTA_TAKEOVER_MEMBER"

type memberConfig struct {
	Kubeconfig, Name string // Name is the rota's
	Delivery         sharding.Mode
	Debug            bool
	Profile          string // the address at which net/http/pprof listens; "": it does not
}

// report is a line that a member prints when its state has changed.
type report struct {
	At         time.Time
	Reconciles int64
	// Owned, Coming, Going and Open are numbers of slots.
	Owned, Coming, Going, Open int
	Settled                    bool // it owns slots, all of them are open, and none moves
}

// reportEvery is the resolution of the measurement.
const reportEvery = 10 * time.Millisecond

// MemberMain runs a member: two controllers that read the objects they reconcile. It returns the exit status.
func MemberMain() int {
	var c memberConfig
	process.EndWithInput(0)
	return process.Main(EnvMember, "takeover", &c, c.run, func(o *zap.Options) { o.Development = c.Debug })
}

func (c *memberConfig) run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	if c.Profile != "" {
		go func() { _ = http.ListenAndServe(c.Profile, nil) }()
	}
	mgr, r, err := stage.NewManager(cfg, rota.Options{Name: c.Name, Delivery: c.Delivery}, ctrl.Options{})
	if err != nil {
		return err
	}
	var count atomic.Int64
	for _, kind := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} {
		err := ctrlrt.NewControllerManagedBy(mgr).For(kind).
			WithOptions(controller.Options{MaxConcurrentReconciles: stage.Concurrency}).
			Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				count.Add(1)
				obj := kind.DeepCopyObject().(client.Object)
				return reconcile.Result{}, client.IgnoreNotFound(mgr.GetClient().Get(ctx, req.NamespacedName, obj))
			}))
		if err != nil {
			return err
		}
	}
	go tell(ctx, r, &count)
	return mgr.Start(ctx)
}

// tell prints reports until ctx ends.
func tell(ctx context.Context, r *rota.Rota, count *atomic.Int64) {
	var last report
	for await.Sleep(ctx, reportEvery) == nil {
		now := report{Reconciles: count.Load()}
		s := r.Status()
		now.Owned, now.Coming, now.Going, now.Open = s.Owned.Len(), s.Coming.Len(), s.Going.Len(), s.Open.Len()
		now.Settled = now.Open > 0 && now.Open == now.Owned && now.Coming == 0 && now.Going == 0 && s.Unowned.Empty()
		if now == last {
			continue
		}
		last = now
		now.At = time.Now()
		if json.NewEncoder(os.Stdout).Encode(now) != nil {
			return
		}
	}
}
