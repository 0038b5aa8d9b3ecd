package feed

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// handler passes the events that a user's handler may hear on to it, and records the deletions that it may not hear of.
// If user is nil, it is the informer's recorder, which sees every barrier.
type handler struct {
	informer *Informer
	user     cache.ResourceEventHandler
	// seen is the number of the last barrier that passed.
	seen atomic.Uint64
}

// hears reports whether the user may hear of slot n now.
func (h *handler) hears(n slot.Slot) bool {
	return h.informer.isOpen(n) && h.seen.Load() >= h.informer.arrived[n].Load()
}

// OnAdd implements cache.ResourceEventHandler.
func (h *handler) OnAdd(obj any, isInInitialList bool) {
	if h.user == nil {
		if n, _, ok := h.informer.SlotOf(obj); ok {
			h.informer.sums.touched(n)
		}
		return
	}
	if h.informer.Source.sharded() {
		if n, _, ok := h.informer.SlotOf(obj); !ok || !h.hears(n) {
			return
		}
	}
	h.user.OnAdd(obj, isInInitialList)
}

// OnUpdate implements cache.ResourceEventHandler. With key UID, a namesake in another slot may replace an object. An
// object of an owned kind may get another owner or lose its owner. In these cases the handler hears of a deletion in
// the old slot and an addition in the new one, unless orphans are delivered.
func (h *handler) OnUpdate(old, obj any) {
	i := h.informer
	if h.user == nil && !i.mobile() {
		return // the recorder does not need it
	}
	h.touch(old, obj)
	if i.Source.sharded() {
		n, _, ok := i.SlotOf(obj)
		if i.mobile() {
			if before, about, was := i.SlotOf(old); was && (!ok || before != n) {
				if i.Role.Orphans {
					h.moved(old, obj, before, about, n, ok)
					return
				}
				key, err := cache.MetaNamespaceKeyFunc(old)
				if err == nil {
					h.OnDelete(cache.DeletedFinalStateUnknown{Key: key, Obj: old})
				}
				h.OnAdd(obj, false)
				return
			}
		}
		if !ok || !h.hears(n) {
			return
		}
	}
	if h.user != nil {
		h.user.OnUpdate(old, obj)
	}
}

// touch notes a change that the recorder received: an object came or went, or a namesake replaced it.
func (h *handler) touch(before, after any) {
	i := h.informer
	if h.user != nil || !i.Source.sharded() {
		return
	}
	from, _, was := i.SlotOf(before)
	to, _, is := i.SlotOf(after)
	if was && is && from == to && (i.share.Key() != slot.KeyUID || sameUID(before, after)) {
		return // the same object
	}
	if was {
		i.sums.touched(from)
	}
	if is {
		i.sums.touched(to)
	}
}

func sameUID(a, b any) bool {
	x, errX := meta.Accessor(a)
	y, errY := meta.Accessor(b)
	return errX == nil && errY == nil && x.GetUID() == y.GetUID()
}

// moved passes on that an object got an owner, another owner, or none.
func (h *handler) moved(old, obj any, before slot.Slot, about sharding.Subject, n slot.Slot, has bool) {
	heard := h.hearsOrMisses(before, about)
	if h.user != nil && (heard || has && h.hears(n)) {
		h.user.OnUpdate(old, obj)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h *handler) OnDelete(obj any) {
	i := h.informer
	if !i.Source.sharded() {
		h.user.OnDelete(obj)
		return
	}
	mark := ""
	_, unknown := obj.(cache.DeletedFinalStateUnknown)
	if !unknown {
		mark = markOf(obj)
	}
	if serial, ok := barrierOf(mark); ok {
		h.seen.Store(serial)
		if h.user == nil {
			i.arrives(serial)
		}
		i.progress()
		return
	}
	if mark == markLost {
		if h.user == nil {
			i.sums.touchedAll()
		}
		return
	}
	n, about, ok := i.SlotOf(obj)
	if !ok {
		if h.user == nil {
			i.sums.touchedAll()
		}
		return
	}
	in, missing := missingOf(mark)
	if missing {
		n = in
	}
	if h.user == nil {
		i.sums.touched(n)
	}
	if h.user == nil && (unknown || missing) {
		// The version of the deletion is not known. It is at most the version of the list that did not show the object.
		i.Source.sawListed(n)
	}
	i.noteTombstone(about, n) // before a handler hears of the deletion
	if missing {
		i.miss(n, about, func() bool { return false })
		return
	}
	if h.hearsOrMisses(n, about) && h.user != nil {
		h.user.OnDelete(obj)
	}
}

// hearsOrMisses reports whether the user may hear of a deletion in slot n, and records the deletion if not.
func (h *handler) hearsOrMisses(n slot.Slot, about sharding.Subject) bool {
	return !h.informer.miss(n, about, func() bool { return h.hears(n) })
}

// Handlers do not hear of deletions in slots that are not open: while slots are on their way to this member, in a
// handover for instance. They are recorded here, and Open returns them to be enqueued (Opened.Deleted).

// misses are these deletions, by slot.
type misses struct {
	by *slots
	mu sync.Mutex
	of map[slot.Slot]map[sharding.Subject]struct{}
}

// miss records a deletion in a slot that is held, unless heard returns true. Open flips the slots before it takes the
// lock, so it gets what is recorded here.
func (m *misses) miss(n slot.Slot, about sharding.Subject, heard func() bool) (missed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if heard() {
		return false
	}
	if !m.by.Holds(n) || m.by.IsLedElsewhere() {
		return true
	}
	if m.of[n] == nil {
		m.of[n] = map[sharding.Subject]struct{}{}
	}
	m.of[n][about] = struct{}{}
	return true
}

// TakeMissed removes and returns the deletions recorded in the slots.
func (m *misses) TakeMissed(set slot.Set) []sharding.Subject {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []sharding.Subject
	for n, missed := range m.of {
		if !set.Has(n) {
			continue
		}
		out = slices.AppendSeq(out, maps.Keys(missed))
		delete(m.of, n)
	}
	return out
}

// missLate records a deletion for a slot that is not open. The store does not show the deletion, since a namesake has
// replaced the object.
func (i *Informer) missLate(o stream.Object) {
	if i.share.open.Load().Has(o.Slot) {
		return
	}
	i.miss(o.Slot, sharding.Subject{Kind: i.Kind, Name: types.NamespacedName(o.Name)}, func() bool { return false })
}

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
