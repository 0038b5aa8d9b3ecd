package ctrlrt

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
)

type (
	request     = reconcile.Request
	plainQueue  = workqueue.TypedRateLimitingInterface[request]
	newQueue    = func(string, workqueue.TypedRateLimiter[request]) plainQueue
	prioritized = priorityqueue.PriorityQueue[request]
)

// queue wraps a work queue: keys of others stay out of it, and the rota knows what waits.
type queue struct {
	plainQueue
	controller *rota.Controller
}

// Add implements workqueue.TypedInterface.
func (q *queue) Add(r request) {
	if q.controller.Add(r.NamespacedName) {
		q.plainQueue.Add(r)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(r request, d time.Duration) {
	if q.controller.Add(r.NamespacedName) {
		q.plainQueue.AddAfter(r, d)
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue) AddRateLimited(r request) {
	if q.controller.Add(r.NamespacedName) {
		q.plainQueue.AddRateLimited(r)
	}
}

// Get implements workqueue.TypedInterface.
func (q *queue) Get() (request, bool) {
	r, shutdown := q.plainQueue.Get()
	if !shutdown {
		q.controller.Take(r.NamespacedName)
	}
	return r, shutdown
}

// Done implements workqueue.TypedInterface. By now the controller has added the key again if it wants it again.
func (q *queue) Done(r request) {
	q.controller.Done(r.NamespacedName)
	q.plainQueue.Done(r)
}

// priorityQueue wraps a priority queue, which controller-runtime recognises by its type.
type priorityQueue struct {
	queue
	priorities prioritized
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *priorityQueue) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	var mine []request
	for _, r := range items {
		if q.controller.Add(r.NamespacedName) {
			mine = append(mine, r)
		}
	}
	q.priorities.AddWithOpts(o, mine...)
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *priorityQueue) GetWithPriority() (request, int, bool) {
	r, priority, shutdown := q.priorities.GetWithPriority()
	if !shutdown {
		q.controller.Take(r.NamespacedName)
	}
	return r, priority, shutdown
}

var (
	_ plainQueue  = (*queue)(nil)
	_ prioritized = (*priorityQueue)(nil)
)

// wrapQueue returns a constructor of wrapped queues. The unwrapped one is that of the options, or the one that
// controller-runtime would choose.
func wrapQueue(o controller.Options, c *rota.Controller, made func(plainQueue)) newQueue {
	inner := o.NewQueue
	if inner == nil {
		inner = stockQueue(o)
	}
	return func(name string, limiter workqueue.TypedRateLimiter[request]) plainQueue {
		plain := inner(name, limiter)
		wrapped := queue{plainQueue: plain, controller: c}
		var out plainQueue = &wrapped
		if p, ok := plain.(prioritized); ok {
			out = &priorityQueue{queue: wrapped, priorities: p}
		}
		made(out)
		return out
	}
}

// stockQueue is the default of controller.NewTypedUnmanaged, which setting NewQueue takes the place of.
func stockQueue(o controller.Options) newQueue {
	return func(name string, limiter workqueue.TypedRateLimiter[request]) plainQueue {
		if ptr.Deref(o.UsePriorityQueue, true) {
			return priorityqueue.New(name, func(p *priorityqueue.Opts[request]) {
				p.Log = o.Logger.WithValues("controller", name)
				p.RateLimiter = limiter
			})
		}
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[request]{Name: name})
	}
}

// enqueue adds keys to a queue, at a priority where the queue knows them.
func enqueue(q plainQueue, keys []request, priority int) {
	if p, ok := q.(prioritized); ok {
		p.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, keys...)
		return
	}
	for _, key := range keys {
		q.Add(key)
	}
}
