package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	_ "net/http/pprof" //nolint:gosec // on loopback, where asked for
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/internal/process"
)

// EnvMember is the environment variable that carries a member's configuration.
const EnvMember = "ROTA_TAKEOVER_MEMBER"

type memberConfig struct {
	Kubeconfig, Name string // Name is the rota's
	Delivery         delivery.Mode
	Debug            bool
	Profile          string // the address at which net/http/pprof listens; "": nowhere
}

// report is a line that a member prints when something has changed.
type report struct {
	At         time.Time
	Reconciles int64
	// Owned, Coming, Going and Open are numbers of slots.
	Owned, Coming, Going, Open int
	Settled                    bool // it owns slots, all of them are open, and none is on its way
}

// reportEvery is the resolution of what is measured.
const reportEvery = 10 * time.Millisecond

// MemberMain is a member: two controllers that read what they are told of. It returns the exit status.
func MemberMain() int {
	var c memberConfig
	process.EndWithInput(0)
	return process.Main(EnvMember, "takeover", &c, c.run, func(o *zap.Options) { o.Development = c.Debug })
}

func (c *memberConfig) run(ctx context.Context) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	if c.Profile != "" {
		go func() { _ = http.ListenAndServe(c.Profile, nil) }() //nolint:gosec // as above
	}
	r, err := rota.New(cfg, rota.Options{Name: c.Name, Delivery: c.Delivery, Logger: ctrl.Log})
	if err != nil {
		return err
	}
	mgr, err := ctrlrt.NewManager(cfg, r, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	var count atomic.Int64
	read := func(obj func() client.Object) reconcile.Func {
		return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			count.Add(1)
			return reconcile.Result{}, client.IgnoreNotFound(mgr.GetClient().Get(ctx, req.NamespacedName, obj()))
		}
	}
	with := controller.Options{MaxConcurrentReconciles: 8}
	if err := errors.Join(
		ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).WithOptions(with).Complete(read(func() client.Object { return &corev1.Secret{} })),
		ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WithOptions(with).Complete(read(func() client.Object { return &corev1.ConfigMap{} })),
	); err != nil {
		return err
	}
	go tell(ctx, r, &count)
	return mgr.Start(ctx)
}

// tell prints reports until ctx ends.
func tell(ctx context.Context, r *rota.Rota, count *atomic.Int64) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	var last report
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := report{Reconciles: count.Load()}
		s := r.Status()
		now.Owned, now.Coming, now.Going, now.Open = s.Owned.Len(), s.Coming.Len(), s.Going.Len(), s.Open.Len()
		now.Settled = now.Open > 0 && now.Open == now.Owned && now.Coming == 0 && now.Going == 0 && s.Unowned.Empty()
		if now == last {
			continue
		}
		last = now
		now.At = time.Now()
		line, err := json.Marshal(now)
		if err != nil {
			panic(err) // it has plain fields
		}
		if _, err := fmt.Fprintln(os.Stdout, string(line)); err != nil {
			return
		}
	}
}
