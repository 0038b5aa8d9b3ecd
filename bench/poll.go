package bench

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/stage"
)

const (
	// pollPeriod is the time from when all that was listed has been begun until the next list.
	pollPeriod = time.Minute
	// pollLook is how often it is looked whether it has.
	pollLook = 100 * time.Millisecond
	// pollPage is how many objects are listed at a time.
	pollPage = 500
)

// poll has the leader list all main objects now and then, and reconcile each.
func poll(_ context.Context, c *operatorConfig, cfg *rest.Config, o ctrl.Options) (built, error) {
	o.NewClient = uncached
	b, err := lead(c, cfg, o, false)
	if err != nil {
		return b, err
	}
	mgr := b.Manager
	b.add = func(_ context.Context, of stage.Controller, r reconcile.Reconciler) error {
		gvk, err := mgr.GetClient().GroupVersionKindFor(of.For)
		if err != nil {
			return err
		}
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(gvk)
		keys := func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			go func() {
				for ctx.Err() == nil {
					if err := eachKey(ctx, mgr.GetClient(), all, queue.Add); err != nil {
						mgr.GetLogger().Error(err, "Cannot list what is to be reconciled; trying again", "in", c.Poll.String())
					}
					for queue.Len() > 0 && ctx.Err() == nil {
						_ = await.Sleep(ctx, pollLook) // the loop looks
					}
					_ = await.Sleep(ctx, c.Poll) // the loop looks
				}
			}()
			return nil
		}
		name := "poll-" + strings.ToLower(gvk.Kind)
		return ctrl.NewControllerManagedBy(mgr).Named(name).WatchesRawSource(source.Func(keys)).
			WithOptions(controller.Options{MaxConcurrentReconciles: of.Workers}).Complete(r)
	}
	return b, nil
}

// eachKey lists objects by pages, and calls a function with the key of each.
func eachKey(
	ctx context.Context, c client.Client, page *metav1.PartialObjectMetadataList, do func(reconcile.Request),
) error {
	for more := ""; ; {
		if err := c.List(ctx, page, client.Limit(pollPage), client.Continue(more)); err != nil {
			return err
		}
		for i := range page.Items {
			do(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&page.Items[i])})
		}
		if more = page.Continue; more == "" {
			return nil
		}
	}
}

// uncached makes a manager's client that reads from the API server.
func uncached(cfg *rest.Config, o client.Options) (client.Client, error) {
	o.Cache = nil
	return client.New(cfg, o)
}
