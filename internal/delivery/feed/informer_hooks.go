package feed

import (
	"reflect"
	"sync"
	"sync/atomic"

	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// transformer is the user's function that changes each object before it is stored.
type transformer struct {
	f atomic.Pointer[func(any) (any, error)]
}

// transformed returns an object as the user's function changes it, and marks it, so that it is not changed again on its
// way to the store. Where the function fails, or returns something of another type, the store's own call has to show
// it.
func (t *transformer) transformed(obj runtime.Object) runtime.Object {
	f := t.f.Load()
	if f == nil {
		return obj
	}
	out, err := (*f)(obj)
	if err != nil || reflect.TypeOf(out) != reflect.TypeOf(obj) {
		return obj
	}
	markTransformed(out)
	return out.(runtime.Object)
}

// SetTransform sets the function that changes each object before it is stored. It does not get marked objects.
func (i *Informer) SetTransform(f cache.TransformFunc) error {
	if f == nil {
		err := i.SharedIndexInformer.SetTransform(nil)
		if err == nil {
			i.transformer.f.Store(nil)
		}
		return err
	}
	var one sync.Mutex // lists are transformed on a separate goroutine
	serial := func(obj any) (any, error) {
		one.Lock()
		defer one.Unlock()
		return f(obj)
	}
	err := i.SharedIndexInformer.SetTransform(func(obj any) (any, error) {
		if markOf(obj) != "" || unmarkTransformed(obj) {
			return obj, nil
		}
		return serial(obj)
	})
	if err == nil {
		i.transformer.f.Store(&serial)
	}
	return err
}

// watchErrors calls an informer's WatchErrorHandler.
type watchErrors struct {
	reflector *cache.Reflector // it only has the name and the type of the real one

	mu      sync.Mutex
	handler cache.WatchErrorHandlerWithContext // the user's, or nil for client-go's
}

// report calls the handler.
func (w *watchErrors) report(ctx context.Context, err error) {
	w.mu.Lock()
	handler := w.handler
	w.mu.Unlock()
	if handler == nil {
		handler = cache.DefaultWatchErrorHandler
	}
	handler(ctx, w.reflector, err)
}

func (w *watchErrors) handle(handler cache.WatchErrorHandlerWithContext) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handler = handler
}

// SetWatchErrorHandler implements cache.SharedInformer. The handler also hears of errors of the watches that this
// package opens. Those come with a reflector that only has the name and the type of the real one.
func (i *Informer) SetWatchErrorHandler(handler cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext implements cache.SharedInformer, as SetWatchErrorHandler does.
func (i *Informer) SetWatchErrorHandlerWithContext(handler cache.WatchErrorHandlerWithContext) error {
	if err := i.SharedIndexInformer.SetWatchErrorHandlerWithContext(handler); err != nil {
		return err
	}
	i.handle(handler)
	return nil
}
