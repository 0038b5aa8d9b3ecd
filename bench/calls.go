package bench

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/stage"
)

const (
	// callTime is how long a reconcile waits.
	callTime = 250 * time.Millisecond
	// callWorkers is how many objects a replica reconciles at a time.
	callWorkers = 5
)

// calls are Websites without children. Their controller waits, as if it asked another system, and writes the status: so
// a replica has few reconciles at a time, but a processor for more.
type calls struct{ websites }

func (calls) kinds() []client.Object { return []client.Object{&webv1.Website{}} }

func (calls) fill(ctx context.Context, r *runner, n int) error { return r.cluster.Fill(ctx, n) }

func (calls) controllers(mgr manager.Manager, _ *operatorConfig) []controlled {
	c := mgr.GetClient()
	r := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		if err := await.Sleep(ctx, callTime); err != nil {
			return reconcile.Result{}, err
		}
		site := &webv1.Website{}
		if err := c.Get(ctx, req.NamespacedName, site); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if site.Status.ObservedGeneration == site.Generation {
			return reconcile.Result{}, nil
		}
		before := site.DeepCopy()
		site.Status.ObservedGeneration = site.Generation
		if err := c.Status().Patch(ctx, site, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("write the status of %s: %w", req, err)
		}
		return reconcile.Result{}, nil
	})
	return []controlled{{stage.Controller{
		For: &webv1.Website{}, Workers: callWorkers,
		Events: []predicate.Predicate{predicate.GenerationChangedPredicate{}},
	}, r}}
}
