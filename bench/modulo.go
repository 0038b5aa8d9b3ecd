package bench

import (
	"context"

	"github.com/cespare/xxhash/v2"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/test/stage"
)

// modulo has the replica reconcile what its number is due to.
func modulo(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
	o.Scheme = stage.Scheme()
	o.Metrics.BindAddress = "0"
	mgr, err := ctrl.NewManager(cfg, o)
	return built{Manager: mgr, add: func(ctx context.Context, of stage.Controller, inner reconcile.Reconciler) error {
		r := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			if xxhash.Sum64String(req.String())%uint64(c.Of) != uint64(c.Number) {
				return reconcile.Result{}, nil
			}
			return inner.Reconcile(ctx, req)
		})
		return of.AddTo(ctx, mgr, r)
	}}, err
}
