// Package fair provides work queues in which tenants take turns, so that a flood of items from one tenant does not
// delay the others. By default a tenant is a namespace. Apart from the order of items, the queues are client-go's work
// queues. They do not need a rota, and rota.NewQueue accepts them like any work queue. For controllers of
// controller-runtime see ctrlrt.FairQueue.
package fair

import (
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/turns"
)

// Options control how items take turns. By default each namespace has one turn.
type Options[T comparable] struct {
	// Tenant returns the tenant of an item, which may be any string. It is called while the queue is locked, so it must
	// not block or use the queue. An item counts for the tenant that it had when it was added. Default: the namespace for
	// items with a field Namespace, such as reconcile.Request, and for strings of the form namespace/name; otherwise "".
	Tenant func(T) string
	// Weight returns how many turns a tenant has for each turn of a tenant of weight 1. Values below 1 count as 1. It is
	// called like Tenant. Default 1.
	Weight func(tenant string) int
}

// NewQueue returns a work queue like workqueue.NewTypedRateLimitingQueueWithConfig whose items take turns by tenant. It
// is safe for concurrent use. config.DelayingQueue must be nil.
func NewQueue[T comparable](
	limiter workqueue.TypedRateLimiter[T], config workqueue.TypedRateLimitingQueueConfig[T], o Options[T],
) *Queue[T] {
	if config.DelayingQueue != nil {
		panic("fair: NewQueue makes the DelayingQueue of its config: leave it out")
	}
	q := &Queue[T]{order: order[T]{turns: turns.New(o.Tenant, o.Weight, 0)}}
	plain := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: config.Name, MetricsProvider: config.MetricsProvider, Clock: config.Clock, Queue: &q.order,
	})
	config.DelayingQueue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
		Name: config.Name, MetricsProvider: config.MetricsProvider, Clock: config.Clock, Queue: plain,
	})
	q.TypedRateLimitingInterface = workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config)
	return q
}

// Queue is a work queue whose items take turns by tenant.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	order order[T]
}

// Done implements workqueue.TypedInterface.
func (q *Queue[T]) Done(item T) {
	q.order.done(item)
	q.TypedRateLimitingInterface.Done(item)
}

// Tenants returns the tenants with items that wait or are in work, in any order.
func (q *Queue[T]) Tenants() []Tenant {
	q.order.mu.Lock()
	defer q.order.mu.Unlock()
	var out []Tenant
	for _, t := range q.order.turns.Tenants() {
		out = append(out, Tenant(t))
	}
	return out
}

// Tenant counts a tenant's items that wait for a worker and that workers have.
type Tenant struct {
	Name             string
	Waiting, Working int
}

// order implements workqueue.Queue: the order of a work queue's items.
type order[T comparable] struct {
	mu     sync.Mutex
	turns  *turns.Turns[T]
	number uint64
}

var _ workqueue.Queue[string] = (*order[string])(nil)

// Touch implements workqueue.Queue.
func (*order[T]) Touch(T) {}

// Push implements workqueue.Queue.
func (o *order[T]) Push(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.number++
	o.turns.Push(item, 0, o.number)
}

// Len implements workqueue.Queue.
func (o *order[T]) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turns.Len()
}

// Pop implements workqueue.Queue.
func (o *order[T]) Pop() (item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	item, _ = o.turns.Pop()
	return item
}

func (o *order[T]) done(item T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns.Done(item)
}
