package feed

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
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
