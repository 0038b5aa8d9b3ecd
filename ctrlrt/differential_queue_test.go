package ctrlrt

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/fair"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/queuetest"
	"github.com/rota-dev/rota/test/require"
)

func queueLimiter() workqueue.TypedRateLimiter[request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[request](1370*time.Microsecond, 10*time.Second)
}

// A controller's queue, on a member that has all slots, does what controller-runtime's does, with priorities and
// without, also if it is fair.
func TestAControllersQueueIsAStockQueue(t *testing.T) {
	fairly := func(name string, limiter workqueue.TypedRateLimiter[request]) plainQueue {
		return newFairQueue(name, limiter, fair.Options[request]{}, 0)
	}
	for name, o := range map[string][2]controller.Options{
		"with priorities":    {{}, {}},
		"without priorities": {{UsePriorityQueue: ptr.To(false)}, {UsePriorityQueue: ptr.To(false)}},
		"fair":               {{}, {NewQueue: fairly}},
	} {
		t.Run(name, func(t *testing.T) {
			if o[1].NewQueue != nil {
				skipOldStockQueue(t)
			}
			queuetest.Compare(t, func(*testing.T) *queuetest.Player[request] {
				return &queuetest.Player[request]{Queue: innerQueue(o[0])("stock", queueLimiter()), Item: requestOf}
			}, func(t *testing.T) *queuetest.Player[request] { return controllersPlayer(t, o[1]) })
		})
	}
}

// controllersPlayer is of the queue of a controller of a member that has all slots.
func controllersPlayer(t *testing.T, o controller.Options) *queuetest.Player[request] {
	// Without an API server: a Done while an item is reconciled is taken for a panic, which would be told.
	r, err := rota.New(nil, rota.Options{Solo: true, Logger: funcr.New(func(string, string) {}, funcr.Options{})})
	require.NoError(t, err)
	require.NoError(t, shareOf(r).Shard(configMaps.GroupKind()))
	var all slot.Set
	for n := range queuetest.Items {
		item := requestOf(n + 1)
		all.Add(shareOf(r).Slot(item.Namespace, item.Name, ""))
	}
	shareOf(r).Hold(all)
	gate := r.Adapt(adapter.Grant()).Gate
	gate.SetDeadline(100000 * time.Hour) // a simulated clock is far behind that of the machine
	gate.Open(all, 1)
	w := &worker{}
	w.controller, err = r.Adapt(adapter.Grant()).NewController("test", configMaps.GroupKind(), func([]types.NamespacedName, work.Priority) {})
	require.NoError(t, err)
	same := func(key types.NamespacedName) types.NamespacedName { return key }
	return &queuetest.Player[request]{
		Queue: wrapQueue(o, w.controller, same, w.setQueue)("member", queueLimiter()), Item: requestOf,
		Admit: func(sync func(context.Context, request) error) func(context.Context, request) error {
			w := &worker{controller: w.controller, reconciler: reconcile.Func(
				func(ctx context.Context, item request) (reconcile.Result, error) {
					return reconcile.Result{}, sync(ctx, item)
				})}
			return func(ctx context.Context, item request) error {
				_, err := w.Reconcile(ctx, item)
				return err
			}
		},
	}
}
