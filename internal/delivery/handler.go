package delivery

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// handler passes the events that a user's handler may hear on to it, and records the deletions that it may not hear of.
// If user is nil, it is the informer's recorder, which sees every barrier.
type handler struct {
	informer *informer
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
		if n, _, ok := h.informer.slotOf(obj); ok {
			h.informer.touched(n)
		}
		return
	}
	if h.informer.source.sharded() {
		if n, _, ok := h.informer.slotOf(obj); !ok || !h.hears(n) {
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
	if i.source.sharded() {
		n, _, ok := i.slotOf(obj)
		if i.mobile() {
			if before, about, was := i.slotOf(old); was && (!ok || before != n) {
				if i.role.Orphans {
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

// OnDelete implements cache.ResourceEventHandler.
func (h *handler) OnDelete(obj any) {
	i := h.informer
	if !i.source.sharded() {
		h.user.OnDelete(obj)
		return
	}
	mark := ""
	_, unknown := obj.(cache.DeletedFinalStateUnknown)
	if !unknown {
		mark = markOf(obj)
	}
	if serial, ok := barrierOf(mark); ok {
		h.pass(serial)
		return
	}
	if mark == markLost {
		if h.user == nil {
			i.touchedAll()
		}
		return
	}
	n, about, ok := i.slotOf(obj)
	if !ok {
		if h.user == nil {
			i.touchedAll()
		}
		return
	}
	in, missing := missingOf(mark)
	if missing {
		n = in
	}
	if h.user == nil {
		i.touched(n)
	}
	if h.user == nil && (unknown || missing) {
		// The version of the deletion is not known. It is at most that of the list that did not show the object.
		i.source.sawListed(n)
	}
	i.noteTombstone(about, n) // before anybody hears of the deletion
	if missing {
		i.mu.Lock()
		i.miss(n, about)
		i.mu.Unlock()
		return
	}
	if h.hearsOrMisses(n, about) && h.user != nil {
		h.user.OnDelete(obj)
	}
}

// pass notes that a barrier passed.
func (h *handler) pass(serial uint64) {
	h.seen.Store(serial)
	i := h.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if h.user == nil {
		if arrived, ok := i.waiting[serial]; ok {
			close(arrived)
			delete(i.waiting, serial)
		}
	}
	close(i.passed)
	i.passed = make(chan struct{})
}

// everyoneSaw waits until the barrier has passed every handler.
func (i *informer) everyoneSaw(ctx context.Context, serial uint64) error {
	for {
		i.mu.Lock()
		passed, behind := i.passed, false
		for h := range i.handlers {
			behind = behind || h.seen.Load() < serial
		}
		i.mu.Unlock()
		if !behind {
			return nil
		}
		select {
		case <-passed:
		case <-i.source.done:
			return errStopped
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// AddEventHandler implements cache.SharedInformer.
func (i *informer) AddEventHandler(user cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(user, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *informer) AddEventHandlerWithResyncPeriod(user cache.ResourceEventHandler,
	resync time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(user, cache.HandlerOptions{ResyncPeriod: &resync})
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *informer) AddEventHandlerWithOptions(user cache.ResourceEventHandler,
	o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	i.joining.Lock()
	defer i.joining.Unlock()
	h := &handler{informer: i, user: user}
	h.seen.Store(i.marks.Load())
	i.mu.Lock()
	i.handlers[h] = nil
	i.mu.Unlock()
	registration, err := i.SharedIndexInformer.AddEventHandlerWithOptions(h, o)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		delete(i.handlers, h)
		return nil, err
	}
	i.handlers[h] = registration
	return registration, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (i *informer) RemoveEventHandler(registration cache.ResourceEventHandlerRegistration) error {
	err := i.SharedIndexInformer.RemoveEventHandler(registration)
	i.mu.Lock()
	defer i.mu.Unlock()
	for h, r := range i.handlers {
		if r == registration {
			delete(i.handlers, h)
		}
	}
	close(i.passed) // nobody needs to wait for this handler any more
	i.passed = make(chan struct{})
	return err
}

// Handlers do not hear of deletions in slots that are not open: while slots are on their way to this member, in a
// handover for instance. They are recorded here, and Open returns them to be enqueued (Opened.Deleted).

// LedElsewhere says whether somebody who is no member works on all objects and hears of their deletions: a leader with
// stock leader election. Meanwhile none are recorded, however long members wait with the slots that they hold.
func (s *Share) LedElsewhere(yes bool) { s.ledElsewhere.Store(yes) }

// IsLedElsewhere returns what LedElsewhere was last told.
func (s *Share) IsLedElsewhere() bool { return s.ledElsewhere.Load() }

// hearsOrMisses reports whether the user may hear of a deletion in slot n, and records the deletion if not. Open flips
// the slots before it takes the lock, so it gets what is recorded here.
func (h *handler) hearsOrMisses(n slot.Slot, about sharding.Subject) bool {
	i := h.informer
	i.mu.Lock()
	defer i.mu.Unlock()
	if h.hears(n) {
		return true
	}
	i.miss(n, about)
	return false
}

// miss records a deletion in a slot that is held. i.mu is held.
func (i *informer) miss(n slot.Slot, about sharding.Subject) {
	if !i.share.Holds(n) || i.share.IsLedElsewhere() {
		return
	}
	if i.missed[n] == nil {
		i.missed[n] = map[sharding.Subject]struct{}{}
	}
	i.missed[n][about] = struct{}{}
}

// takeMissed removes and returns the deletions recorded in the slots.
func (i *informer) takeMissed(set slot.Set) []sharding.Subject {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []sharding.Subject
	for n, missed := range i.missed {
		if !set.Has(n) {
			continue
		}
		out = slices.AppendSeq(out, maps.Keys(missed))
		delete(i.missed, n)
	}
	return out
}
