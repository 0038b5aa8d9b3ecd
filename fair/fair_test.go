package fair_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/fair"
	"github.com/rota-dev/rota/test/queuetest"
)

func limiter() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](1370*time.Microsecond, 10*time.Second)
}

// A fair queue whose items are of one tenant does what client-go's does.
func TestAFairQueueIsAWorkQueue(t *testing.T) {
	item := func(n int) string { return fmt.Sprint("a/", n) }
	config := workqueue.TypedRateLimitingQueueConfig[string]{}
	queuetest.Compare(t, func(*testing.T) *queuetest.Player[string] {
		return &queuetest.Player[string]{Queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter(), config), Item: item}
	}, func(*testing.T) *queuetest.Player[string] {
		return &queuetest.Player[string]{Queue: fair.NewQueue(limiter(), config, fair.Options[string]{}), Item: item}
	})
}

// get takes all items, each of which is done at once.
func get[T comparable](q *fair.Queue[T]) (out []T) {
	for q.Len() > 0 {
		item, _ := q.Get()
		out = append(out, item)
		q.Done(item)
	}
	return out
}

func TestTenants(t *testing.T) {
	name := func(namespace, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	names := fair.NewQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName](),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{}, fair.Options[types.NamespacedName]{})
	defer names.ShutDown()
	for _, n := range []types.NamespacedName{name("a", "1"), name("a", "2"), name("b", "1")} {
		names.Add(n)
	}
	if got := fmt.Sprint(get(names)); got != "[a/1 b/1 a/2]" {
		t.Errorf("by namespace of names: %s", got)
	}
	requests := fair.NewQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](),
		workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{}, fair.Options[reconcile.Request]{})
	defer requests.ShutDown()
	for _, n := range []types.NamespacedName{name("a", "1"), name("a", "2"), name("b", "1")} {
		requests.Add(reconcile.Request{NamespacedName: n})
	}
	if got := fmt.Sprint(get(requests)); got != "[a/1 b/1 a/2]" {
		t.Errorf("by namespace of requests: %s", got)
	}
	own := fair.NewQueue(limiter(), workqueue.TypedRateLimitingQueueConfig[string]{}, fair.Options[string]{
		Tenant: func(item string) string { return item[len(item)-1:] },
		Weight: func(tenant string) int {
			if tenant == "1" {
				return 2
			}
			return -1
		},
	})
	defer own.ShutDown()
	for _, item := range []string{"a1", "b1", "c1", "d1", "e2", "f2"} {
		own.Add(item)
	}
	if item, _ := own.Get(); item != "a1" {
		t.Errorf("%s is first", item)
	}
	if got := fmt.Sprint(own.Tenants()); got != "[{1 3 1} {2 2 0}]" && got != "[{2 2 0} {1 3 1}]" {
		t.Errorf("tenants: %s", got)
	}
	own.Done("a1")
	if got := fmt.Sprint(get(own)); got != "[b1 e2 c1 d1 f2]" {
		t.Errorf("by tenants and weights of the program: %s", got)
	}
}

// A queue that was made elsewhere cannot be fair.
func TestADelayingQueueOfOnesOwn(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("it was taken, and its items do not take turns")
		}
	}()
	own := workqueue.NewTypedDelayingQueue[string]()
	defer own.ShutDown()
	fair.NewQueue(limiter(), workqueue.TypedRateLimitingQueueConfig[string]{DelayingQueue: own}, fair.Options[string]{})
}
