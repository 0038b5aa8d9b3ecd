package ctrlrt

import (
	"container/heap"
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/fair"
	"github.com/rota-dev/rota/internal/turns"
)

// lowTurn is the number of turns of which one goes to a lower priority while items of a higher one wait.
const lowTurn = 10

// FairQueue returns a constructor of work queues for controller.Options.NewQueue. They behave like controller-runtime's
// priority queues, except for the order of items of one priority: tenants take turns, so that a flood of events of one
// does not delay the objects of others. By default a tenant is a namespace. While items of a higher priority wait, one
// turn in ten goes to a lower priority, so that items from lists and handovers do not wait forever.
//
//	ctrl.NewControllerManagedBy(mgr).For(&v1.Website{}).
//		WithOptions(controller.Options{NewQueue: ctrlrt.FairQueue(fair.Options[reconcile.Request]{})})
//
// It works with any manager. Each call of the constructor makes a separate queue.
func FairQueue(o fair.Options[reconcile.Request]) func(
	controllerName string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[request]) plainQueue {
		return newFairQueue(name, limiter, o, lowTurn)
	}
}

// fairQueue is a priority queue with the guarantees of controller-runtime's. Within a priority, package turns decides
// the order.
type fairQueue struct {
	name    string
	limiter workqueue.TypedRateLimiter[request]
	metrics *queueMetrics
	done    chan struct{}
	wake    chan struct{} // the first item of waiting has changed; buffered

	mu   sync.Mutex
	some *sync.Cond // items are ready, or the queue has shut down
	shut bool
	// items were added and not taken yet. locked items were taken and are not done.
	items  map[request]*queued
	locked map[request]bool
	// ready are the items that may be taken, without locked ones. length is the number of ready items, locked or not.
	ready  *turns.Turns[request]
	length int
	// lists are the ready items by tenant, in the order in which they became ready.
	lists   map[string]*list.List
	waiting waiting
	added   uint64
}

// queued is an item that was added and not taken yet.
type queued struct {
	item     request
	priority int
	at       time.Time // when it will be ready, or zero if it is ready
	since    time.Time // when it became ready
	added    uint64    // the number of the call that determines its place in the order
	index    int       // in waiting
	tenant   string    // set when it is ready
	listed   *list.Element
}

func newFairQueue(
	name string, limiter workqueue.TypedRateLimiter[request], o fair.Options[request], every int,
) *fairQueue {
	if limiter == nil {
		limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[request](5*time.Millisecond, 1000*time.Second)
	}
	q := &fairQueue{
		name: name, limiter: limiter, metrics: newQueueMetrics(name), done: make(chan struct{}),
		wake: make(chan struct{}, 1), items: map[request]*queued{}, locked: map[request]bool{},
		ready: turns.New(o.Tenant, o.Weight, every), lists: map[string]*list.List{},
	}
	q.some = sync.NewCond(&q.mu)
	go q.wait()
	if q.metrics != nil {
		go q.metrics.run(q.done)
		tenantsOfQueues.put(name, q)
	}
	return q
}

var _ prioritized = (*fairQueue)(nil)

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *fairQueue) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return
	}
	for _, item := range items {
		after := o.After
		if o.RateLimited {
			if limited := q.limiter.When(item); after == 0 || limited < after {
				after = limited
			}
		}
		var at time.Time
		if after > 0 {
			at = time.Now().Add(after)
			q.metrics.retry()
		}
		q.add(item, ptr.Deref(o.Priority, 0), at)
	}
}

// add adds an item, or makes an item that was added ready sooner and raises its priority.
func (q *fairQueue) add(item request, priority int, at time.Time) {
	is := q.items[item]
	if is == nil {
		is = &queued{item: item, priority: priority, at: at, added: q.next(), index: -1}
		q.items[item] = is
		if at.IsZero() {
			q.makeReady(is)
		} else {
			heap.Push(&q.waiting, is)
			q.look()
		}
		return
	}
	if priority > is.priority {
		was := is.priority
		is.priority, is.added = priority, q.next()
		if is.at.IsZero() {
			q.metrics.raised(was, priority)
			q.ready.Raise(item, priority, is.added)
		} else {
			heap.Fix(&q.waiting, is.index)
		}
	}
	switch {
	case is.at.IsZero() || !at.IsZero() && !at.Before(is.at):
	case at.IsZero():
		heap.Remove(&q.waiting, is.index)
		q.makeReady(is)
	default:
		is.at = at
		heap.Fix(&q.waiting, is.index)
		q.look()
	}
}

// next returns the next number for the order of items.
func (q *fairQueue) next() uint64 { q.added++; return q.added }

// makeReady makes an item ready.
func (q *fairQueue) makeReady(is *queued) {
	is.at, is.since, is.tenant = time.Time{}, time.Now(), q.ready.TenantOf(is.item)
	if q.lists[is.tenant] == nil {
		q.lists[is.tenant] = list.New()
	}
	is.listed = q.lists[is.tenant].PushBack(is)
	q.length++
	q.metrics.add(is.item, is.priority)
	if !q.locked[is.item] {
		q.ready.Push(is.item, is.priority, is.added)
		q.some.Signal()
	}
}

// look makes wait check the time again.
func (q *fairQueue) look() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// wait makes items ready at their times, until the queue shuts down.
func (q *fairQueue) wait() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-q.done:
			return
		case <-q.wake:
		case <-timer.C:
		}
		q.mu.Lock()
		next := time.Hour
		for len(q.waiting.items) > 0 {
			if next = time.Until(q.waiting.items[0].at); next > 0 {
				break
			}
			is := heap.Pop(&q.waiting).(*queued)
			is.added = q.next() // the order in which items became ready
			q.makeReady(is)
			next = time.Hour
		}
		q.mu.Unlock()
		timer.Reset(next)
	}
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *fairQueue) GetWithPriority() (item request, priority int, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.ready.Len() == 0 && !q.shut {
		q.some.Wait()
	}
	if q.shut {
		return request{}, 0, true
	}
	item, priority = q.ready.Pop()
	is := q.items[item]
	delete(q.items, item)
	all := q.lists[is.tenant]
	if all.Remove(is.listed); all.Len() == 0 {
		delete(q.lists, is.tenant)
	}
	q.locked[item] = true
	q.length--
	q.metrics.get(item, priority)
	return item, priority, false
}

// Done implements workqueue.TypedInterface.
func (q *fairQueue) Done(item request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.metrics.done(item)
	if !q.locked[item] {
		return
	}
	delete(q.locked, item)
	q.ready.Done(item)
	if is := q.items[item]; is != nil && is.at.IsZero() {
		q.ready.Push(item, is.priority, is.added)
		q.some.Signal()
	}
}

// ShutDown implements workqueue.TypedInterface.
func (q *fairQueue) ShutDown() {
	tenantsOfQueues.drop(q.name, q)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shut = true
	q.some.Broadcast()
	close(q.done)
}

// ShutDownWithDrain is ShutDown, as with controller-runtime's queue.
func (q *fairQueue) ShutDownWithDrain() { q.ShutDown() }

// ShuttingDown implements workqueue.TypedInterface.
func (q *fairQueue) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.shut
}

// Len implements workqueue.TypedInterface. It returns the number of ready items.
func (q *fairQueue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.length
}

// Get implements workqueue.TypedInterface.
func (q *fairQueue) Get() (item request, shutdown bool) {
	item, _, shutdown = q.GetWithPriority()
	return item, shutdown
}

// Add implements workqueue.TypedInterface.
func (q *fairQueue) Add(item request) { q.AddWithOpts(priorityqueue.AddOpts{}, item) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *fairQueue) AddAfter(item request, after time.Duration) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after}, item)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *fairQueue) AddRateLimited(item request) {
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, item)
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *fairQueue) Forget(item request) { q.limiter.Forget(item) }

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *fairQueue) NumRequeues(item request) int { return q.limiter.NumRequeues(item) }

// tenantItems counts a tenant's items. oldest is how long the oldest one has been waiting for a worker.
type tenantItems struct {
	turns.Tenant
	oldest time.Duration
}

// tenants returns the tenants with waiting or locked items, in any order.
func (q *fairQueue) tenants(now time.Time) []tenantItems {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []tenantItems
	for _, t := range q.ready.Tenants() {
		out = append(out, tenantItems{t, q.oldest(t.Name, now)})
	}
	return out
}

// oldest returns how long the oldest item of a tenant has been waiting for a worker. q.mu is held.
func (q *fairQueue) oldest(tenant string, now time.Time) time.Duration {
	all := q.lists[tenant]
	if all == nil {
		return 0
	}
	for e := all.Front(); e != nil; e = e.Next() {
		if is := e.Value.(*queued); !q.locked[is.item] { // there are at most as many locked items as workers
			return now.Sub(is.since)
		}
	}
	return 0
}

// waiting is a heap, by time, of items that are not ready.
type waiting struct{ items []*queued }

// Len implements heap.Interface.
func (w *waiting) Len() int { return len(w.items) }

// Less implements heap.Interface.
func (w *waiting) Less(i, j int) bool {
	a, b := w.items[i], w.items[j]
	switch {
	case !a.at.Equal(b.at):
		return a.at.Before(b.at)
	case a.priority != b.priority:
		return a.priority > b.priority
	}
	return a.added < b.added
}

// Swap implements heap.Interface.
func (w *waiting) Swap(i, j int) {
	w.items[i], w.items[j] = w.items[j], w.items[i]
	w.items[i].index, w.items[j].index = i, j
}

// Push implements heap.Interface.
func (w *waiting) Push(x any) {
	is := x.(*queued)
	is.index = len(w.items)
	w.items = append(w.items, is)
}

// Pop implements heap.Interface.
func (w *waiting) Pop() any {
	last := len(w.items) - 1
	is := w.items[last]
	w.items[last] = nil
	w.items, is.index = w.items[:last], -1
	return is
}
