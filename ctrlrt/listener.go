package ctrlrt

import (
	"reflect"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// listener is the event handler of a source of a sharded controller. It can be asked what it would enqueue for an
// object, predicates included. Predicates and map functions are called by one goroutine at a time, as usual.
type listener struct {
	mu    sync.Mutex
	stock toolscache.ResourceEventHandler
	// twin is the handler of the same source of the controller's twin, which enqueues to answers.
	twin    toolscache.ResourceEventHandler
	answers *answers
}

// newListener returns a listener around a source's handler. ok is false if there is no twin of the handler to ask.
func newListener(stock, twin toolscache.ResourceEventHandler, answers *answers) (l *listener, ok bool) {
	return &listener{stock: stock, twin: twin, answers: answers}, reflect.TypeOf(stock) == reflect.TypeOf(twin)
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

// ask returns what the source would enqueue for an object.
func (l *listener) ask(of any) []request {
	obj, ok := of.(client.Object)
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers.ask(l.twin, obj)
}

// mapFunc is the type that handler.EnqueueRequestsFromMapFunc returns.
var mapFunc = reflect.TypeOf(handler.EnqueueRequestsFromMapFunc(nil))

// isPure reports whether a handler of Watches only maps objects to requests. The operator's own handlers may have other
// effects, such as counting events, so they must receive each event once.
func isPure(h handler.EventHandler) bool {
	_, own := h.(*handler.EnqueueRequestForObject)
	return own || h != nil && reflect.TypeOf(h) == mapFunc
}

// listenedInformer is an informer that passes each new handler through heard.
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
