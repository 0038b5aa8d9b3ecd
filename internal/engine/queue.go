package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/work"
)

// Queue implements rota.Queue.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	queue *controllers.Queue[T] // the same queue
	item  func(types.NamespacedName) T
}

// Admit implements rota.Queue.Admit.
func (q *Queue[T]) Admit(sync func(context.Context, T) error) func(context.Context, T) error {
	return q.queue.Admit(sync)
}

// OnReset implements rota.Queue.OnReset.
func (q *Queue[T]) OnReset(f func(ctx context.Context, item T)) { q.queue.OnReset(f) }

// OnLost implements rota.Queue.OnLost.
func (q *Queue[T]) OnLost(f func(ctx context.Context, item T)) {
	if f == nil {
		q.queue.Controller().OnLost(nil)
		return
	}
	q.queue.Controller().OnLost(func(ctx context.Context, key types.NamespacedName) { f(ctx, q.item(key)) })
}

// isQueue marks a queue of the rota.
func (q *Queue[T]) isQueue() {}

// ObjectName implements rota.ObjectName.
type ObjectName interface {
	comparable
	~string | ~struct{ Namespace, Name string }
}

// Items implements rota.Items.
type Items[T comparable] struct {
	Name func(T) (types.NamespacedName, error)
	Item func(types.NamespacedName) T
}

// NewQueue implements rota.NewQueue.
func NewQueue[T ObjectName](r *Engine, name string, informer cache.SharedIndexInformer,
	inner workqueue.TypedRateLimitingInterface[T],
) (*Queue[T], error) {
	return NewQueueOf(r, name, informer, inner, namesAsItems[T]())
}

// NewQueueOf implements rota.NewQueueOf.
func NewQueueOf[T comparable](r *Engine, name string, informer cache.SharedIndexInformer,
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
	if err := r.setup.take(name, inner); err != nil {
		return nil, err
	}
	var c *controllers.Controller
	var err error
	c, err = r.newController(name, kind, informer, func(keys []types.NamespacedName, _ work.Priority) {
		for _, key := range keys {
			if c.Work.Add(key) {
				inner.Add(items.Item(key))
			}
		}
	})
	if err != nil {
		return nil, err
	}
	q := controllers.NewQueue(c, inner, func(item T) (types.NamespacedName, error) {
		name, err := items.Name(item)
		return r.share.KeyOf(kind, name), err
	})
	r.setup.needs(start{kind: kind, started: started})
	return &Queue[T]{TypedRateLimitingInterface: q, queue: q, item: items.Item}, nil
}

// newController shards a kind and adds a controller for it. informer is the one used to make its queue, or nil.
func (r *Engine) newController(
	name string, kind schema.GroupKind, informer cache.SharedIndexInformer, enqueue controllers.Enqueue,
) (*controllers.Controller, error) {
	if err := r.checkLate(); err != nil {
		return nil, fmt.Errorf("controller %s: %w: set up the controllers of sharded kinds before the manager starts, or "+
			"have the member wait for them with JoinAfter of the rota.Rota", name, err)
	}
	if err := r.share.Shard(kind); err != nil {
		return nil, fmt.Errorf("controller %s: %w", name, err)
	}
	return r.controllers.New(name, kind, informer, enqueue)
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
