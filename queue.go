package rota

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/gate"
)

// Queue is a work queue for sharded items. It keeps out items of other members, and tells the rota which items wait. It
// replaces the work queue that it wraps: handlers add to the Queue, workers get from it, and they sync items with a
// function that went through Admit. Nothing else may use the wrapped queue.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	controller *Controller
	name       func(T) (types.NamespacedName, error)
}

// ObjectName is an item that names an object: a string as cache.MetaNamespaceKeyFunc makes it, cache.ObjectName,
// types.NamespacedName, or another type of these forms.
type ObjectName interface {
	comparable
	~string | ~struct{ Namespace, Name string }
}

// Items converts between items of a work queue and the objects that they are about. Both functions are called
// concurrently and must not block.
type Items[T comparable] struct {
	Name func(T) (types.NamespacedName, error)
	Item func(types.NamespacedName) T
}

// NewQueue shards the kind of the informer and returns its work queue. The informer must come from ShareInformer or
// Rota.NewInformer and must not run yet. The name must be unique in the process. Objects of slots that come to this
// member are added to the queue automatically.
//
// An item that names no object is not added, and an error is logged.
func NewQueue[T ObjectName](r *Rota, name string, informer cache.SharedIndexInformer,
	inner workqueue.TypedRateLimitingInterface[T],
) (*Queue[T], error) {
	return NewQueueOf(r, name, informer, inner, namesAsItems[T]())
}

// NewQueueOf is NewQueue for items of any type. An item is about one object. Several may be about the same: they are
// synced one at a time. Item makes the item for an object that comes to this member, or that waited while its slot did
// not move after all. Its sync has to do whatever there is to be done for the object, since nobody remembers which
// items there were.
func NewQueueOf[T comparable](r *Rota, name string, informer cache.SharedIndexInformer,
	inner workqueue.TypedRateLimitingInterface[T], items Items[T],
) (*Queue[T], error) {
	kind, started, ok := r.share.KindOf(informer)
	switch {
	case !ok:
		return nil, fmt.Errorf("queue %s: its informer holds all objects, or has stopped: make one with rota.ShareInformer, "+
			"before its factory is asked for the kind", name)
	case r.share.HoldsByOwner(informer):
		return nil, fmt.Errorf("queue %s: its informer holds %s by their owners: a queue of %s needs an informer made by "+
			"rota.ShareInformer without rota.Children, of another factory", name, kind, kind)
	}
	q := &Queue[T]{TypedRateLimitingInterface: inner}
	q.name = func(item T) (types.NamespacedName, error) {
		name, err := items.Name(item)
		return r.share.KeyOf(kind, name), err
	}
	if err := r.take(name, inner); err != nil {
		return nil, err
	}
	c, err := r.NewController(name, kind, func(keys []types.NamespacedName, _ Priority) {
		for _, key := range keys {
			if q.controller.work.Add(key) {
				inner.Add(items.Item(key))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	q.controller = c
	r.mu.Lock()
	defer r.mu.Unlock()
	c.informer = informer
	r.started = append(r.started, start{kind: kind, started: started})
	return q, nil
}

// take notes which Queue a work queue belongs to. Two Queues would each believe that items taken by the other still
// wait.
func (r *Rota) take(name string, inner any) error {
	if !reflect.TypeOf(inner).Comparable() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if owner, taken := r.inner[inner]; taken {
		return fmt.Errorf("queue %s: its work queue is that of queue %s already: make a work queue for each", name, owner)
	}
	if _, wrapped := inner.(interface{ isQueue() }); wrapped {
		return fmt.Errorf("queue %s: its work queue is a Queue of the rota already", name)
	}
	r.inner[inner] = name
	return nil
}

// namesAsItems returns the Items of NewQueue.
func namesAsItems[T ObjectName]() Items[T] {
	itemType, nameType := reflect.TypeFor[T](), reflect.TypeFor[types.NamespacedName]()
	if itemType.Kind() != reflect.String {
		return Items[T]{
			Name: func(item T) (types.NamespacedName, error) {
				return reflect.ValueOf(item).Convert(nameType).Interface().(types.NamespacedName), nil
			},
			Item: func(name types.NamespacedName) T { return reflect.ValueOf(name).Convert(itemType).Interface().(T) },
		}
	}
	return Items[T]{
		Name: func(item T) (types.NamespacedName, error) {
			namespace, name, err := cache.SplitMetaNamespaceKey(reflect.ValueOf(item).String())
			if err == nil && name == "" {
				err = errors.New("there is no name in it")
			}
			return types.NamespacedName{Namespace: namespace, Name: name}, err
		},
		Item: func(name types.NamespacedName) T {
			key := cache.ObjectName(name).String()
			return reflect.ValueOf(key).Convert(itemType).Interface().(T)
		},
	}
}

// WrapQueue returns inner as the queue of a controller made by NewController. name returns the object that an item is
// about. The controller's Enqueue must add keys to the returned queue. It is for adapters with priority queues, such as
// ctrlrt. client-go controllers use NewQueue or NewQueueOf, where nothing can be forgotten.
func WrapQueue[T comparable](c *Controller, inner workqueue.TypedRateLimitingInterface[T],
	name func(T) types.NamespacedName,
) *Queue[T] {
	return &Queue[T]{TypedRateLimitingInterface: inner, controller: c,
		name: func(item T) (types.NamespacedName, error) { return name(item), nil }}
}

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

// isQueue tells a queue of the rota from others.
func (q *Queue[T]) isQueue() {}

// Admit returns a function that calls sync for the items that the gate admits, with a context that carries the slot's
// epoch (EpochFrom) and ends when the slot is lost. For other items it returns nil: call only Forget and Done for
// them. It also returns nil if sync failed because its context ended: the slot's next owner repeats it.
//
// Clients must write with that context (WrapConfig). Nothing may be written for an item after its Done.
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
				q.controller.Ended(key, adapter.ErrPanicked)
			}
		}()
		err := sync(ctx, item)
		returned = true
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
	q.controller.work.Drop(key)
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
	c.work.With(func(k *keys) { claimed = k.Claim(key, item) })
	return claimed
}

// isClaimed reports whether an item's object is synced by another item.
func (c *Controller) isClaimed(key types.NamespacedName, item any) bool {
	var other any
	c.work.With(func(k *keys) { other = k.Claimed(key) })
	return other != nil && other != item
}

// unclaim ends what claim began. The object's flight must have ended before, or it would be taken for that of the next
// item.
func (c *Controller) unclaim(key types.NamespacedName) { c.work.With(func(k *keys) { k.Unclaim(key) }) }

// Add implements workqueue.TypedInterface.
func (q *Queue[T]) Add(item T) {
	if key, ok := q.about(item); ok && q.controller.Add(key) {
		q.TypedRateLimitingInterface.Add(item)
	}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *Queue[T]) AddAfter(item T, d time.Duration) {
	if key, ok := q.about(item); ok && q.controller.AddLater(key) {
		q.TypedRateLimitingInterface.AddAfter(item, d)
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
	if key, ok := q.about(item); ok {
		q.controller.Take(key)
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
