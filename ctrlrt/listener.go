package ctrlrt

import (
	"reflect"
	"strings"
	"sync"
	"time"
	"unsafe"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// listener is the handler that a source of a sharded controller has in an informer. It can be asked what it would
// enqueue because of an object, predicates included. Predicates and map functions are called by one goroutine at a
// time, as always.
type listener struct {
	mu    sync.Mutex
	stock toolscache.ResourceEventHandler
	// twin is stock with another queue: answer.
	twin   toolscache.ResourceEventHandler
	answer *answerQueue
}

// newListener returns a listener around a source's handler, and whether it can be asked.
func newListener(stock toolscache.ResourceEventHandler) (l *listener, ok bool) {
	l = &listener{stock: stock, answer: &answerQueue{}}
	l.twin, ok = withQueue(stock, l.answer)
	return l, ok
}

// OnAdd implements toolscache.ResourceEventHandler.
func (l *listener) OnAdd(obj any, isInInitialList bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stock.OnAdd(obj, isInInitialList)
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (l *listener) OnUpdate(old, obj any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stock.OnUpdate(old, obj)
}

// OnDelete implements toolscache.ResourceEventHandler.
func (l *listener) OnDelete(obj any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stock.OnDelete(obj)
}

// ask returns what the source would enqueue because of an object: as a start would, by a creation; or, if its
// predicates refuse that, by an update. What the former owner of a slot had in its queue may have come by either.
func (l *listener) ask(of any) []request {
	obj, ok := of.(client.Object)
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.twin.OnAdd(obj, true)
	if len(l.answer.got) == 0 {
		l.twin.OnUpdate(obj, obj)
	}
	if len(l.answer.got) == 0 {
		l.twin.OnUpdate(unlike(obj), obj)
	}
	return l.answer.take()
}

// unlike returns an object with the same content and other metadata, for predicates that compare these.
func unlike(obj client.Object) client.Object {
	old := obj.DeepCopyObject().(client.Object)
	old.SetGeneration(obj.GetGeneration() - 1)
	old.SetResourceVersion("")
	old.SetLabels(nil)
	old.SetAnnotations(nil)
	old.SetFinalizers(nil)
	old.SetDeletionTimestamp(nil)
	return old
}

// answerQueue takes what a handler of controller-runtime enqueues. These call nothing but its own methods.
type answerQueue struct {
	plainQueue
	got []request
}

// These implement workqueue.TypedRateLimitingInterface.
func (q *answerQueue) Add(r request)                       { q.got = append(q.got, r) }
func (q *answerQueue) AddAfter(r request, _ time.Duration) { q.Add(r) }
func (q *answerQueue) AddRateLimited(r request)            { q.Add(r) }

func (q *answerQueue) take() []request {
	got := q.got
	q.got = nil
	return got
}

// withQueue returns a copy of the handler that a source.Kind adds to an informer, with another queue.
// controller-runtime has no other way to learn what its predicates say. ok is false for other handlers.
func withQueue(stock toolscache.ResourceEventHandler, q plainQueue) (twin toolscache.ResourceEventHandler, ok bool) {
	given := reflect.ValueOf(stock)
	if given.Kind() != reflect.Pointer || given.IsNil() {
		return nil, false
	}
	t := given.Elem().Type()
	if !strings.HasPrefix(t.PkgPath(), controllerRuntime) || !strings.HasPrefix(t.Name(), "EventHandler[") {
		return nil, false
	}
	own := reflect.New(t)
	own.Elem().Set(given.Elem())
	field := own.Elem().FieldByName("queue")
	if !field.IsValid() || field.Type() != reflect.TypeFor[plainQueue]() {
		return nil, false
	}
	*(*plainQueue)(unsafe.Pointer(field.UnsafeAddr())) = q // the type of the field is checked above
	twin, ok = own.Interface().(toolscache.ResourceEventHandler)
	return twin, ok
}

const controllerRuntime = "sigs.k8s.io/controller-runtime/"

// isPure reports whether a handler of Watches only maps objects to requests. One of the operator's own may do anything,
// such as count events, so it must hear of each event once.
func isPure(h handler.EventHandler) bool {
	t := reflect.TypeOf(h)
	if t == nil || t.Kind() != reflect.Pointer {
		return false
	}
	name := t.Elem().Name()
	return strings.HasPrefix(t.Elem().PkgPath(), controllerRuntime) &&
		(strings.HasPrefix(name, "TypedEnqueueRequestForObject[") || strings.HasPrefix(name, "enqueueRequestsFromMapFunc["))
}

// isChannel recognizes source.Channel. Its events reach one process only, and do not come again after a start.
func isChannel(src source.Source) bool {
	t := reflect.TypeOf(src)
	return t != nil && t.Kind() == reflect.Pointer && strings.HasPrefix(t.Elem().PkgPath(), controllerRuntime) &&
		strings.HasPrefix(t.Elem().Name(), "channel[")
}

// listenedInformer is an informer in which the sources of a sharded controller have their handlers.
type listenedInformer struct {
	cache.Informer
	heard func(toolscache.ResourceEventHandler) toolscache.ResourceEventHandler
}

// AddEventHandler implements cache.Informer.
func (i listenedInformer) AddEventHandler(h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(i.heard(h))
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i listenedInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, resync time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(i.heard(h), resync)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i listenedInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(i.heard(h), o)
}
