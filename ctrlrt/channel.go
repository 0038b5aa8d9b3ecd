package ctrlrt

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// channelSource is a source.Channel of a sharded controller. Its events reach only this process, so events for objects
// of other members are forwarded to their owners, or dropped if members cannot reach each other.
type channelSource struct{ source.Source }

// forwarding returns a source that forwards events. Sources other than source.Channel are returned unchanged, since
// every member gets their events.
func forwarding(src source.Source) source.Source {
	if !controllerruntime.IsChannel(src) {
		return src
	}
	return channelSource{src}
}

// String names the source in logs.
func (s channelSource) String() string { return fmt.Sprint(s.Source) }

// Start implements source.Source.
func (s channelSource) Start(ctx context.Context, q plainQueue) error {
	switch own := q.(type) {
	case *priorityQueue:
		q = channelPriorityQueue{channelQueue{own, own.shardedQueue}, own}
	case *shardedQueue:
		q = channelQueue{own, own}
	}
	return s.Source.Start(ctx, q)
}

// channelQueue is the queue of a controller for the handler of a channel.
type channelQueue struct {
	plainQueue
	sharded *shardedQueue
}

func (q channelQueue) forward(items ...request) {
	for _, r := range items {
		q.sharded.Controller().ForwardOrDrop(q.sharded.about(r).NamespacedName)
	}
}

// Add implements workqueue.TypedInterface.
func (q channelQueue) Add(r request) {
	q.forward(r)
	q.plainQueue.Add(r)
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q channelQueue) AddAfter(r request, d time.Duration) {
	q.forward(r)
	q.plainQueue.AddAfter(r, d)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q channelQueue) AddRateLimited(r request) {
	q.forward(r)
	q.plainQueue.AddRateLimited(r)
}

// channelPriorityQueue is a channelQueue with priorities. Handlers recognize priority queues by their type.
type channelPriorityQueue struct {
	channelQueue
	priorities *priorityQueue
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q channelPriorityQueue) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	q.forward(items...)
	q.priorities.AddWithOpts(o, items...)
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q channelPriorityQueue) GetWithPriority() (request, int, bool) {
	return q.priorities.GetWithPriority()
}

var _ prioritized = channelPriorityQueue{}
