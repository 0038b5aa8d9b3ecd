package feed

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// listeners are the user's handlers of an informer.
type listeners struct {
	recorder *handler // not one of the user's

	mu       sync.Mutex
	handlers map[*handler]cache.ResourceEventHandlerRegistration
	passed   chan struct{} // closed and replaced when any handler passes a barrier
}

// progress has waits look again which handlers have passed a barrier.
func (l *listeners) progress() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.passed)
	l.passed = make(chan struct{})
}

// everyoneSaw waits until the barrier has passed every handler.
func (l *listeners) everyoneSaw(ctx context.Context, serial uint64, done <-chan struct{}) error {
	for {
		l.mu.Lock()
		passed, behind := l.passed, false
		for h := range l.handlers {
			behind = behind || h.seen.Load() < serial
		}
		l.mu.Unlock()
		if !behind {
			return nil
		}
		select {
		case <-passed:
		case <-done:
			return ErrStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// set notes a handler's registration; nil while it is being added.
func (l *listeners) set(h *handler, registration cache.ResourceEventHandlerRegistration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handlers[h] = registration
}

// remove removes the handlers that a function names.
func (l *listeners) remove(is func(*handler, cache.ResourceEventHandlerRegistration) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.handlers, is)
}

// users returns the handlers that were added.
func (l *listeners) users() (users []cache.ResourceEventHandler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.handlers {
		users = append(users, h.user)
	}
	return users
}

// AddEventHandler implements cache.SharedInformer.
func (i *Informer) AddEventHandler(user cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(user, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *Informer) AddEventHandlerWithResyncPeriod(user cache.ResourceEventHandler,
	resync time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(user, cache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *Informer) AddEventHandlerWithOptions(user cache.ResourceEventHandler,
	o cache.HandlerOptions,
) (registration cache.ResourceEventHandlerRegistration, err error) {
	err = i.join(func(last uint64) error {
		h := &handler{informer: i, user: user}
		h.seen.Store(last)
		i.set(h, nil)
		registration, err = i.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
		if err != nil {
			i.remove(func(other *handler, _ cache.ResourceEventHandlerRegistration) bool { return other == h })
			return err
		}
		i.set(h, registration)
		return nil
	})
	return registration, err
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *Informer) RemoveEventHandler(registration cache.ResourceEventHandlerRegistration) error {
	err := i.SharedIndexInformer.RemoveEventHandler(registration)
	i.remove(func(_ *handler, r cache.ResourceEventHandlerRegistration) bool { return r == registration })
	i.progress() // no wait needs this handler any more
	return err
}
