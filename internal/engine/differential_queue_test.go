package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/fair"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/queuetest"
	"github.com/rota-dev/rota/test/require"
)

// queueItem returns an item by its number.
func queueItem(n int) cache.ObjectName {
	return cache.ObjectName{Namespace: "a", Name: fmt.Sprint("item-", n)}
}

func plainQueue() innerQueue {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](1370*time.Microsecond, 10*time.Second))
}

func stockPlayer(*testing.T) *queuetest.Player[cache.ObjectName] {
	return &queuetest.Player[cache.ObjectName]{Queue: plainQueue(), Item: queueItem}
}

// memberPlayer is of the queue of a member that has all slots.
func memberPlayer(t *testing.T) *queuetest.Player[cache.ObjectName] { return playerOf(t, plainQueue()) }

// fairPlayer is the same with a fair queue.
func fairPlayer(t *testing.T) *queuetest.Player[cache.ObjectName] {
	return playerOf(t, fair.NewQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](1370*time.Microsecond, 10*time.Second),
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{}, fair.Options[cache.ObjectName]{}))
}

func playerOf(t *testing.T, inner innerQueue) *queuetest.Player[cache.ObjectName] {
	r := testRota(t)
	r.log = logr.Discard() // it tells what makes no sense
	q, err := NewQueue(r, "test", testInformer(r), inner)
	require.NoError(t, err)
	var all slot.Set
	for n := range queuetest.Items {
		all = all.Union(own(r, queueItem(n+1)))
	}
	r.share.Hold(all)
	r.gate.SetDeadline(1000 * time.Hour)
	return &queuetest.Player[cache.ObjectName]{Queue: q, Item: queueItem, Admit: q.Admit}
}

// A Queue of a member that has all slots does what the work queue does that it wraps, whatever is called in whatever
// order.
func TestAQueueIsAStockQueue(t *testing.T) { queuetest.Compare(t, stockPlayer, memberPlayer) }

// So does one that wraps a fair queue.
func TestAFairQueueIsAStockQueue(t *testing.T) { queuetest.Compare(t, stockPlayer, fairPlayer) }
