package ctrlrt

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/internal/controllers"
)

type (
	request     = reconcile.Request
	plainQueue  = workqueue.TypedRateLimitingInterface[request]
	newQueue    = func(string, workqueue.TypedRateLimiter[request]) plainQueue
	prioritized = priorityqueue.PriorityQueue[request]
)

// shardedQueue is a queue that drops requests for other members' objects.
type shardedQueue struct {
	*controllers.Queue[request]
	keyOf func(types.NamespacedName) types.NamespacedName
}

// about returns the canonical request for an object. With two different requests for one object, two workers could work
// on it at once.
func (q *shardedQueue) about(r request) request {
	return request{NamespacedName: q.keyOf(r.NamespacedName)}
}

// keyOf is delivery.Share.KeyOf for a kind whose scope must be looked up. Until the API server serves the kind, it
// returns the key unchanged.
func (r *reader) keyOf(gvk schema.GroupVersionKind, key client.ObjectKey) client.ObjectKey {
	if key.Namespace == "" {
		return key
	}
	kind := gvk.GroupKind()
	if _, known := r.scopes.Load(kind); !known {
		mapping, err := r.live.mapper.RESTMapping(kind, gvk.Version)
		if err != nil {
			return key
		}
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			r.share.ClusterScoped(kind)
		}
		r.scopes.Store(kind, true)
	}
	return r.share.KeyOf(kind, key)
}

// These implement workqueue.TypedRateLimitingInterface.
func (q *shardedQueue) Add(r request)                       { q.Queue.Add(q.about(r)) }
func (q *shardedQueue) AddAfter(r request, d time.Duration) { q.Queue.AddAfter(q.about(r), d) }
func (q *shardedQueue) AddRateLimited(r request)            { q.Queue.AddRateLimited(q.about(r)) }

// priorityQueue is a shardedQueue with priorities. controller-runtime recognizes priority queues by their type.
type priorityQueue struct {
	*shardedQueue
	controller *controllers.Controller
	priorities prioritized
	arrivals   arrivals
}

// promoted is the priority of an arrival whose turn it is, above the priority of events.
const promoted = 1

// arrived adds keys of slots that this member got.
func (q *priorityQueue) arrived(keys []request, priority int) {
	if priority < 0 {
		q.arrivals.came(keys)
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, keys...)
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *priorityQueue) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	var mine []request
	add := q.controller.Add
	if o.After > 0 || o.RateLimited {
		add = q.controller.AddLater
	}
	for _, r := range items {
		r = q.about(r)
		switch own := o; {
		case !add(r.NamespacedName):
		case o.After > 0 && !o.RateLimited:
			own.After = q.controller.Work.Spread(r.NamespacedName, o.After)
			q.priorities.AddWithOpts(own, r)
		default:
			mine = append(mine, r)
		}
	}
	if len(mine) > 0 {
		q.priorities.AddWithOpts(o, mine...)
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue. controller-runtime requeues an item with the returned
// priority. An arrival has already waited behind the others, so it gets the priority of an event.
func (q *priorityQueue) GetWithPriority() (request, int, bool) {
	q.controller.Started()
	if r, ok := q.arrivals.next(); ok {
		q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(promoted)}, r)
	}
	r, priority, shutdown := q.priorities.GetWithPriority()
	if shutdown {
		return r, priority, shutdown
	}
	if q.arrivals.taken(r) {
		priority = 0
	}
	if q.controller.Take(r.NamespacedName) {
		q.priorities.Forget(r)
	}
	return r, priority, shutdown
}

var _ prioritized = (*priorityQueue)(nil)

func nameOf(r request) (types.NamespacedName, error) { return r.NamespacedName, nil }

// wrapQueue returns a constructor of sharded queues, which wrap the queues of innerQueue. keyOf returns the name by
// which an object is hashed. made is called with each queue.
func wrapQueue(o controller.Options, c *controllers.Controller, keyOf func(types.NamespacedName) types.NamespacedName,
	made func(plainQueue),
) newQueue {
	inner := innerQueue(o)
	return func(name string, limiter workqueue.TypedRateLimiter[request]) plainQueue {
		plain := inner(name, limiter)
		wrapped := &shardedQueue{Queue: controllers.NewQueue(c, plain, nameOf), keyOf: keyOf}
		var out plainQueue = wrapped
		if p, ok := plain.(prioritized); ok {
			q := &priorityQueue{shardedQueue: wrapped, controller: c, priorities: p}
			if _, fair := p.(*fairQueue); !fair { // a fair queue gives lower priorities turns itself
				q.arrivals.every = lowTurn
			}
			out = q
		}
		made(out)
		return out
	}
}

// innerQueue returns NewQueue of the options, or the default of controller.NewTypedUnmanaged, which does not apply once
// NewQueue is set.
func innerQueue(o controller.Options) newQueue {
	if o.NewQueue != nil {
		return o.NewQueue
	}
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

// enqueue adds keys to a queue, with a priority if the queue supports priorities.
func enqueue(q plainQueue, keys []request, priority int) {
	if p, ok := q.(*priorityQueue); ok {
		p.arrived(keys, priority)
		return
	}
	for _, key := range keys {
		q.Add(key)
	}
}

// arrivals are keys of newly gained slots that wait in a priority queue behind all events. If a controller's objects
// requeue themselves all the time, these keys would wait forever. So one turn in every goes to the key that has waited
// longest. The zero value is empty and grants no turns. Its methods may be called concurrently.
type arrivals struct {
	every int

	mu    sync.Mutex
	order list.List // of requests, oldest first
	where map[request]*list.Element
	turns int // other turns since the last one, while keys waited
}

// came records keys that are about to be added to the queue.
func (a *arrivals) came(keys []request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.where == nil {
		a.where = map[request]*list.Element{}
	}
	for _, key := range keys {
		if a.where[key] == nil {
			a.where[key] = a.order.PushBack(key)
		}
	}
}

// next returns the key whose turn it is. It returns false if the turn belongs to the highest priority.
func (a *arrivals) next() (request, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := a.order.Front()
	if first == nil || a.every == 0 {
		a.turns = 0
		return request{}, false
	}
	if a.turns++; a.turns < a.every {
		return request{}, false
	}
	a.turns = 0
	a.order.MoveToBack(first) // a worker may have it right now; then another key is next
	return first.Value.(request), true
}

// taken records that a worker has got a key, and returns whether the key was an arrival.
func (a *arrivals) taken(key request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.where[key]
	if at == nil {
		return false
	}
	a.order.Remove(at)
	delete(a.where, key)
	return true
}
