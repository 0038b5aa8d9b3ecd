package rota

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/engine"
)

// Queue is a work queue for sharded items. It keeps out items of other members, and tells the rota which items wait. It
// replaces the work queue that it wraps: handlers add to the Queue, workers get from it, and they sync items with a
// function that went through Admit. Nothing else may use the wrapped queue.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	queue *engine.Queue[T] // the same
}

// Admit returns a function that calls sync for the items that the gate admits, with a context that carries the slot's
// epoch (EpochFrom) and ends when the slot is lost. For other items it returns nil: call only Forget and Done for
// them. It also returns nil if sync failed because its context ended: the slot's next owner repeats it.
//
// Clients must write with that context (WrapConfig). Nothing may be written for an item after its Done.
func (q *Queue[T]) Admit(sync func(context.Context, T) error) func(context.Context, T) error {
	return q.queue.Admit(sync)
}

// OnReset sets a function that is called before the first sync of each object since its slot was opened on this member,
// even if the slot was this member's before, for instance before a lapse. Handlers hear nothing of a slot while it is
// shut, so counts of an object's events are void then. Controllers that wait for the events of their own writes
// (expectations, as in Kubernetes' own controllers) must forget in f what they expect.
//
// When f is called, no sync of the object runs, the informers show everything that this member and the slot's former
// owner wrote, and handlers have heard of it. f runs in the worker's goroutine, concurrently for different items. It
// may block, which holds up that worker alone. Its context is that of the sync to come, and ends when the slot is lost.
// The object need not exist any more: while it does not, f is called before every sync, since a namesake may come. f is
// called for items that are synced by a function that went through Admit.
//
// A queue has one such function: the last call of OnReset counts. Call it before Run. nil says that the controller
// counts nothing, so that nobody asks whether it was forgotten.
func (q *Queue[T]) OnReset(f func(ctx context.Context, item T)) { q.queue.OnReset(f) }

// OnLost sets a function that is called once for each object that was synced here, when its slot has left this member:
// it was handed over, or this member was expelled. What the process keeps of the object, such as its metrics, is
// dropped in f. An object whose deletion was synced here without an error is not lost. Nor is one whose slot is only
// shut for a while, because the Lease lapsed.
//
// When f is called, nothing of the object is in flight any more, functions of Go included, and no sync of it begins
// before f returns. The calls of a queue are made one at a time, in a goroutine of their own. No handover waits for
// them. If the slot comes back before its turn, the worker calls f before the next sync. f gets the item that
// Items.Item makes, and a context that ends after 10 s. A call that does not return then is logged, and the next one is
// made beside it. While ten hang, objects that leave are logged and forgotten. rota_lost_waiting counts the calls to
// come. A process that ends does not wait for them.
//
// f must not write to the object or its children: they belong to the next owner. A queue has one such function: the
// last call of OnLost counts. Call it before Run.
func (q *Queue[T]) OnLost(f func(ctx context.Context, item T)) { q.queue.OnLost(f) }

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
	q, err := engine.NewQueue(r.engine, name, informer, unwrapped(inner))
	return queueOf(q, err)
}

// NewQueueOf is NewQueue for items of any type. An item is about one object. Several may be about the same: they are
// synced one at a time. Item makes the item for an object that comes to this member, or that waited while its slot did
// not move after all. Its sync has to do whatever there is to be done for the object, since nobody remembers which
// items there were.
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
