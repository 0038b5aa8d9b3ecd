package rota

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/engine"
)

// Queue is a work queue for sharded items. It drops items of other members, and reports its waiting items to the rota.
// It replaces the work queue that it wraps: handlers add to the Queue, workers get from it, and sync items with a
// function returned by Admit. Nothing else may use the wrapped queue.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	queue *engine.Queue[T] // the same
}

// Admit returns a function that calls sync for the items that this member may work on, with a context that carries the
// slot's epoch (EpochFrom) and ends when the slot is lost. For other items it returns nil without calling sync; call
// Forget and Done for them as usual. It also returns nil if sync failed because its context ended, since the slot's
// next owner repeats it.
//
// Clients must write with that context (WrapConfig). Nothing may be written for an item after its Done.
func (q *Queue[T]) Admit(sync func(context.Context, T) error) func(context.Context, T) error {
	return q.queue.Admit(sync)
}

// OnReset sets a function that is called before the first sync of each object after its slot was opened on this member.
// That includes slots that this member had before, for instance before its Lease expired. While a slot is closed,
// handlers get none of its events, so a count of an object's events is wrong afterwards. Controllers that wait for the
// events of their own writes (expectations, as in Kubernetes' controllers) must clear these expectations in f.
//
// When f is called, no sync of the object is running, and informers and handlers have seen all writes of this member
// and of the slot's former owner. f runs in the worker's goroutine, concurrently for different items. It may block,
// which holds up that worker only. It gets the context of the sync that follows, which ends when the slot is lost. If
// the object does not exist, f is called before every sync, since another object of that name may appear. f is called
// only for items that are synced by a function from Admit.
//
// A queue has one such function: the last call of OnReset wins. Call it before Run. With nil the controller declares
// that it has nothing to reset, and Rota logs no reminder.
func (q *Queue[T]) OnReset(f func(ctx context.Context, item T)) { q.queue.OnReset(f) }

// OnLost sets a function that is called once for each object that was synced here, after its slot has left this member
// by a handover or because this member was expelled. f should drop the state that the process keeps for the object,
// such as its metrics. f is not called for an object whose deletion was synced here without an error, nor for a slot
// that is only closed for a while because the Lease expired.
//
// When f is called, no sync of the object is in flight and no function of Go runs for it. No sync begins before f
// returns. The calls of a queue are made one at a time, in a separate goroutine, and no handover waits for them. If the
// slot comes back first, the worker calls f before the next sync. f gets the item made by Items.Item, and a context
// that ends after 10 s. If a call does not return by then, that is logged, and the next call is made concurrently.
// While ten calls hang, no more are made, and the objects are only logged. rota_lost_waiting counts the pending calls.
// The process does not wait for them when it ends.
//
// f must not write to the object or its children, which belong to the next owner. A queue has one such function: the
// last call of OnLost wins. Call it before Run.
func (q *Queue[T]) OnLost(f func(ctx context.Context, item T)) { q.queue.OnLost(f) }

// ObjectName is a work queue item that names an object: a string as made by cache.MetaNamespaceKeyFunc, a
// cache.ObjectName, a types.NamespacedName, or another type of these forms.
type ObjectName interface {
	comparable
	~string | ~struct{ Namespace, Name string }
}

// Items converts between items of a work queue and the names of their objects. Both functions are called concurrently
// and must not block.
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
	q, err := engine.NewQueue(r.engine, name, informer, unwrapped(inner))
	return queueOf(q, err)
}

// NewQueueOf is NewQueue for items of any type. Each item belongs to one object. Several items may belong to the same
// object; they are synced one at a time. Items.Item makes an item for an object that comes to this member, or that was
// held back for a handover that was canceled. The sync of that item must do all work for the object, since its former
// items are not kept.
func NewQueueOf[T comparable](r *Rota, name string, informer cache.SharedIndexInformer,
	inner workqueue.TypedRateLimitingInterface[T], items Items[T],
) (*Queue[T], error) {
	q, err := engine.NewQueueOf(r.engine, name, informer, unwrapped(inner), engine.Items[T](items))
	return queueOf(q, err)
}

// unwrapped returns the engine's queue if inner is a Queue, so that the engine recognizes it and refuses it.
func unwrapped[T comparable](inner workqueue.TypedRateLimitingInterface[T]) workqueue.TypedRateLimitingInterface[T] {
	if q, ok := inner.(*Queue[T]); ok {
		return q.queue
	}
	return inner
}

func queueOf[T comparable](q *engine.Queue[T], err error) (*Queue[T], error) {
	if err != nil {
		return nil, err
	}
	return &Queue[T]{TypedRateLimitingInterface: q, queue: q}, nil
}
