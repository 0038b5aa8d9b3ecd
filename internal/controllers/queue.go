package controllers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/gate"
)

// Queue is rota.Queue: a work queue that keeps out items of other members, and tells a controller which items wait.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	controller *Controller
	name       func(T) (types.NamespacedName, error)
}

// NewQueue returns inner as the queue of a controller. name returns the object that an item is about. The controller's
// Enqueue must add keys to the returned queue, or say to the controller's Work what it adds to inner.
func NewQueue[T comparable](c *Controller, inner workqueue.TypedRateLimitingInterface[T],
	name func(T) (types.NamespacedName, error),
) *Queue[T] {
	return &Queue[T]{TypedRateLimitingInterface: inner, controller: c, name: name}
}

// IsQueue tells an adapter's queue from others.
func (q *Queue[T]) IsQueue() {}

// Controller returns the queue's controller.
func (q *Queue[T]) Controller() *Controller { return q.controller }

// about returns the object that an item is about.
func (q *Queue[T]) about(item T) (types.NamespacedName, bool) {
	name, err := q.name(item)
	if err != nil {
		q.controller.fault("names no object",
			"an item names no object, so that it is no member's: add namespace/name, or the name alone where the kind is "+
				"not namespaced", "item", fmt.Sprint(item), "error", err.Error())
	}
	return name, err == nil
}

// Admit is rota.Queue.Admit.
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

// claimedDelay is how long an item waits whose object a worker syncs by another item.
const claimedDelay = 50 * time.Millisecond

// bounce puts an item back whose object a worker syncs by another item. The key is in the queue again before it is with
// no worker any more: the slot must not move in between if the object is gone. Until Done the item is as if it had
// never been taken: Forget leaves its failures, and Done has no part in the other one's sync.
func (q *Queue[T]) bounce(key types.NamespacedName, item T) {
	q.controller.mu.Lock()
	q.controller.bounced[item] = struct{}{}
	q.controller.mu.Unlock()
	q.AddAfter(item, claimedDelay)
	q.controller.Work.Drop(key)
}

// hasBounced reports whether an item was put back since it was taken.
func (c *Controller) hasBounced(item any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, bounced := c.bounced[item]
	return bounced
}

// unbounce reports whether an item was put back since it was taken, and forgets that.
func (c *Controller) unbounce(item any) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, bounced := c.bounced[item]
	delete(c.bounced, item)
	return bounced
}

// claim says whether an item may be synced, as far as other items about the same object go. It is so until unclaim.
func (c *Controller) claim(key types.NamespacedName, item any) (claimed bool) {
	c.Work.With(func(k *keys) { claimed = k.Claim(key, item) })
	return claimed
}

// isClaimed reports whether an item's object is synced by another item.
func (c *Controller) isClaimed(key types.NamespacedName, item any) bool {
	var other any
	c.Work.With(func(k *keys) { other = k.Claimed(key) })
	return other != nil && other != item
}

// unclaim ends what claim began. The object's flight must have ended before, or it would be taken for that of the next
// item.
func (c *Controller) unclaim(key types.NamespacedName) { c.Work.With(func(k *keys) { k.Unclaim(key) }) }

// Add implements workqueue.TypedInterface.
func (q *Queue[T]) Add(item T) {
	if key, ok := q.about(item); ok && q.controller.Add(key) {
		q.TypedRateLimitingInterface.Add(item)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface. What a sync adds may come sooner; see work.Controller.Spread.
func (q *Queue[T]) AddAfter(item T, d time.Duration) {
	if key, ok := q.about(item); ok && q.controller.AddLater(key) {
		q.TypedRateLimitingInterface.AddAfter(item, q.controller.Work.Spread(key, d))
	}
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface. The failures of an item that is another member's now
// are forgotten.
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

// Forget implements workqueue.TypedRateLimitingInterface. An item that waits while another one about its object is
// synced keeps its failures.
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
		q.controller.unclaim(key)
	}
	q.TypedRateLimitingInterface.Done(item)
}
