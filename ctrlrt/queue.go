package ctrlrt

import (
	"k8s.io/apimachinery/pkg/types"
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

// priorityQueue wraps a priority queue. controller-runtime recognizes those by their type.
type priorityQueue struct {
	*rota.Queue[request]
	controller *rota.Controller
	priorities prioritized
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *priorityQueue) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	var mine []request
	add := q.controller.Add
	if o.After > 0 || o.RateLimited {
		add = q.controller.AddLater
	}
	for _, r := range items {
		if add(r.NamespacedName) {
			mine = append(mine, r)
		}
	}
	q.priorities.AddWithOpts(o, mine...)
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *priorityQueue) GetWithPriority() (request, int, bool) {
	q.controller.Started()
	r, priority, shutdown := q.priorities.GetWithPriority()
	if !shutdown {
		q.controller.Take(r.NamespacedName)
	}
	return r, priority, shutdown
}

var _ prioritized = (*priorityQueue)(nil)

func nameOf(r request) types.NamespacedName { return r.NamespacedName }

// wrapQueue returns a constructor of wrapped queues. The unwrapped queue is that of the options, or the one that
// controller-runtime would choose.
func wrapQueue(o controller.Options, c *rota.Controller, made func(plainQueue)) newQueue {
	inner := o.NewQueue
	if inner == nil {
		inner = stockQueue(o)
	}
	return func(name string, limiter workqueue.TypedRateLimiter[request]) plainQueue {
		plain := inner(name, limiter)
		wrapped := rota.WrapQueue(c, plain, nameOf)
		var out plainQueue = wrapped
		if p, ok := plain.(prioritized); ok {
			out = &priorityQueue{Queue: wrapped, controller: c, priorities: p}
		}
		made(out)
		return out
	}
}

// stockQueue is the default of controller.NewTypedUnmanaged, which does not apply once NewQueue is set.
func stockQueue(o controller.Options) newQueue {
	return func(name string, limiter workqueue.TypedRateLimiter[request]) plainQueue {
		if ptr.Deref(o.UsePriorityQueue, true) {
			return priorityqueue.New(name, func(p *priorityqueue.Opts[request]) {
				p.Log = o.Logger.WithValues("controller", name)
				p.RateLimiter = limiter
			})
		}
		return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[request]{Name: name})
	}
}

// enqueue adds keys to a queue, with a priority if the queue has priorities.
func enqueue(q plainQueue, keys []request, priority int) {
	if p, ok := q.(prioritized); ok {
		p.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, keys...)
		return
	}
	for _, key := range keys {
		q.Add(key)
	}
}
