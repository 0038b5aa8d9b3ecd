package rota

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/gate"
)

// Queue is a work queue whose items are sharded: those of other members stay out of it, and the rota knows which ones
// wait. It takes the place of the work queue that it wraps; workers use it as they would that one, and sync what they
// get from it with a function that went through Admit.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	controller *Controller
	name       func(T) types.NamespacedName
}

// ObjectName is an item that names an object: cache.ObjectName, types.NamespacedName, or a type of one's own like them.
type ObjectName interface {
	comparable
	~struct{ Namespace, Name string }
}

// NewQueue shards the kind of the informer, which must come from ShareInformer or from Share().NewInformer and not run
// yet, and returns the work queue for it. Name is unique in the process. The objects of slots that come to this member
// are added to the queue by themselves.
//
// Use NewController and WrapQueue for items of other types, strings for instance.
func NewQueue[T ObjectName](r *Rota, name string, informer cache.SharedIndexInformer,
	inner workqueue.TypedRateLimitingInterface[T],
) (*Queue[T], error) {
	kind, started, ok := r.share.Of(informer)
	if !ok {
		return nil, fmt.Errorf("queue %s: its informer holds all objects, or has stopped: make one with rota.ShareInformer", name)
	}
	q := &Queue[T]{TypedRateLimitingInterface: inner, name: func(item T) types.NamespacedName { return types.NamespacedName(item) }}
	c, err := r.NewController(name, kind, func(keys []types.NamespacedName, _ Priority) {
		for _, key := range keys {
			q.Add(T(key))
		}
	})
	if err != nil {
		return nil, err
	}
	q.controller = c
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = append(r.started, start{kind, started})
	return q, nil
}

// WrapQueue returns inner as the queue of the controller. Name returns the object that an item is about. The
// controller's Enqueue has to add keys to the returned queue.
func WrapQueue[T comparable](c *Controller, inner workqueue.TypedRateLimitingInterface[T], name func(T) types.NamespacedName) *Queue[T] {
	return &Queue[T]{TypedRateLimitingInterface: inner, controller: c, name: name}
}

// Controller returns the controller that the queue belongs to.
func (q *Queue[T]) Controller() *Controller { return q.controller }

// Admit returns a function that calls sync for the items that the gate admits, with a context that carries the slot's
// epoch (gate.EpochFrom) and ends when the slot is lost. For others it returns nil: there is nothing to do for them
// but Forget and Done. It returns nil, too, when sync failed because its context ended: the slot's next owner repeats
// it.
//
// Clients have to write with that context (WrapConfig). Nothing may be written for an item after its Done.
func (q *Queue[T]) Admit(sync func(context.Context, T) error) func(context.Context, T) error {
	return func(ctx context.Context, item T) error {
		key := q.name(item)
		ctx, ok := q.controller.Admit(context.WithValue(ctx, itemKey{}, item), key)
		if !ok {
			return nil
		}
		err := sync(ctx, item)
		if err != nil {
			q.controller.Ended(key, err)
		}
		if err != nil && gate.CutShort(ctx) {
			q.controller.rota.log.V(1).Info("Sync was cut short", "controller", q.controller.name, "object", key.String(),
				"cause", context.Cause(ctx).Error(), "error", err.Error())
			return nil
		}
		return err
	}
}

// Add implements workqueue.TypedInterface.
func (q *Queue[T]) Add(item T) {
	if q.controller.Add(q.name(item)) {
		q.TypedRateLimitingInterface.Add(item)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *Queue[T]) AddAfter(item T, d time.Duration) {
	if q.controller.AddLater(q.name(item)) {
		q.TypedRateLimitingInterface.AddAfter(item, d)
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface. The failures of an item that is another member's by
// now are forgotten: when it comes back it begins anew.
func (q *Queue[T]) AddRateLimited(item T) {
	q.controller.again(q.name(item))
	if !q.controller.AddLater(q.name(item)) {
		q.Forget(item)
		return
	}
	q.TypedRateLimitingInterface.AddRateLimited(item)
}

// Get implements workqueue.TypedInterface.
func (q *Queue[T]) Get() (T, bool) {
	q.controller.Started()
	item, shutdown := q.TypedRateLimitingInterface.Get()
	if !shutdown {
		q.controller.Take(q.name(item))
	}
	return item, shutdown
}

// Done implements workqueue.TypedInterface. Call it after the item was added again, if it is to be.
func (q *Queue[T]) Done(item T) {
	q.controller.Done(q.name(item))
	q.TypedRateLimitingInterface.Done(item)
}
