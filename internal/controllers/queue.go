package controllers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/gate"
)

// Queue implements rota.Queue: a work queue that drops items of other members and tracks which items wait.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	controller *Controller
	name       func(T) (types.NamespacedName, error)
}

// NewQueue wraps inner as the queue of a controller. name returns the object that an item refers to. The controller's
// Enqueue must add keys to the returned queue, or report to the controller's Work what it adds to inner.
func NewQueue[T comparable](c *Controller, inner workqueue.TypedRateLimitingInterface[T],
	name func(T) (types.NamespacedName, error),
) *Queue[T] {
	return &Queue[T]{TypedRateLimitingInterface: inner, controller: c, name: name}
}

// IsQueue marks an adapter's queue.
func (q *Queue[T]) IsQueue() {}

// Controller returns the queue's controller.
func (q *Queue[T]) Controller() *Controller { return q.controller }

// about returns the object that an item refers to.
func (q *Queue[T]) about(item T) (types.NamespacedName, bool) {
	name, err := q.name(item)
	if err != nil {
		q.controller.fault("names no object",
			"an item names no object, so no member reconciles it: add namespace/name, or the name alone where the kind is "+
				"not namespaced", "item", fmt.Sprint(item), "error", err.Error())
	}
	return name, err == nil
}

// Admit implements rota.Queue.Admit.
func (q *Queue[T]) Admit(sync func(context.Context, T) error) func(context.Context, T) error {
	return func(ctx context.Context, item T) error {
		key, ok := q.about(item)
		if !ok {
			return nil
		}
		if !q.controller.claim(key, item) {
			q.bounce(key, item)
			return nil
		}
		ctx, ok = q.controller.Admit(context.WithValue(ctx, itemKey{}, item), key)
		if !ok {
			return nil
		}
		returned := false
		defer func() {
			if !returned {
				q.controller.Ended(key, ErrPanicked)
			}
		}()
		err := sync(ctx, item)
		returned = true
		if err != nil {
			q.controller.Ended(key, err)
		}
		if err != nil && gate.CutShort(ctx) {
			q.controller.env.Log.V(1).Info("Sync was cut short", "controller", q.controller.Name, "object", key.String(),
				"cause", context.Cause(ctx).Error(), "error", err.Error())
			return nil
		}
		return err
	}
}

// claimedDelay is how long an item waits while a worker syncs its object through another item.
const claimedDelay = 50 * time.Millisecond

// bounce puts back an item whose object a worker syncs through another item. The key is queued again before the worker
// lets go of it, so that the slot cannot move in between if the object is gone. Until Done, the item is treated as if
// it had never been taken: Forget keeps its failures, and Done does not affect the other item's sync.
func (q *Queue[T]) bounce(key types.NamespacedName, item T) {
	q.controller.noteBounced(item)
	q.AddAfter(item, claimedDelay)
	q.controller.Work.Drop(key)
}

// claim reserves the object for an item until Keys.Unclaim. It returns false if another item has reserved it.
func (c *Controller) claim(key types.NamespacedName, item any) (claimed bool) {
	c.Work.With(func(k *keys) { claimed = k.Claim(key, item) })
	return claimed
}

// isClaimed reports whether another item's sync has reserved the object.
func (c *Controller) isClaimed(key types.NamespacedName, item any) bool {
	var other any
	c.Work.With(func(k *keys) { other = k.Claimed(key) })
	return other != nil && other != item
}

// Add implements workqueue.TypedInterface.
func (q *Queue[T]) Add(item T) {
	if key, ok := q.about(item); ok && q.controller.Add(key) {
		q.TypedRateLimitingInterface.Add(item)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface. An item that a sync adds may come sooner; see
// work.Controller.Spread.
func (q *Queue[T]) AddAfter(item T, d time.Duration) {
	if key, ok := q.about(item); ok && q.controller.AddLater(key) {
		q.TypedRateLimitingInterface.AddAfter(item, q.controller.Work.Spread(key, d))
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface. It forgets the failures of an item that belongs to
// another member by now.
func (q *Queue[T]) AddRateLimited(item T) {
	key, ok := q.about(item)
	if ok {
		q.controller.again(key)
	}
	if !ok || !q.controller.AddLater(key) {
		q.TypedRateLimitingInterface.Forget(item)
		return
	}
	q.TypedRateLimitingInterface.AddRateLimited(item)
}

// Get implements workqueue.TypedInterface.
func (q *Queue[T]) Get() (T, bool) {
	q.controller.Started()
	item, shutdown := q.TypedRateLimitingInterface.Get()
	if shutdown {
		return item, shutdown
	}
	if key, ok := q.about(item); ok && q.controller.Take(key) {
		q.TypedRateLimitingInterface.Forget(item)
	}
	return item, shutdown
}

// Forget implements workqueue.TypedRateLimitingInterface. An item that waits while its object is synced through another
// item keeps its failures.
func (q *Queue[T]) Forget(item T) {
	if !q.controller.hasBounced(item) {
		q.TypedRateLimitingInterface.Forget(item)
	}
}

// Done implements workqueue.TypedInterface. If the item is to be added again, call Done after that.
func (q *Queue[T]) Done(item T) {
	key, err := q.name(item)
	switch {
	case q.controller.unbounce(item):
	case err == nil && !q.controller.isClaimed(key, item):
		q.controller.Done(key)
		q.controller.Work.With(func(k *keys) { k.Unclaim(key) })
	}
	q.TypedRateLimitingInterface.Done(item)
}
