package feed

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// placement maps an informer's objects to slots.
type placement struct {
	share *Common
	Kind  schema.GroupKind
	Role  sharding.Role
	// ByOwner is true if the informer holds objects by their owners, even if the kind is primary as well. Apart is true if
	// it holds all objects, whether or not the kind is sharded. See NewWholeInformer.
	ByOwner, Apart bool
}

// SlotOf returns the slot of an object, or of the object within a cache.DeletedFinalStateUnknown. An orphan is in none
// of the rota's slots, and no object is reconciled because of it.
func (p *placement) SlotOf(obj any) (slot.Slot, sharding.Subject, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if gone.Obj == nil {
			namespace, name, err := cache.SplitMetaNamespaceKey(gone.Key)
			if err != nil || p.mobile() {
				return 0, sharding.Subject{}, false
			}
			return p.share.Slot(namespace, name, ""),
				sharding.Subject{Kind: p.Kind, Name: types.NamespacedName{Namespace: namespace, Name: name}}, true
		}
		obj = gone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return 0, sharding.Subject{}, false
	}
	n, about, ok := p.share.SlotBy(p.Kind, p.Role, accessor)
	if !ok && p.Role.Adopts(accessor) {
		return p.share.OrphanSlot(), sharding.Subject{}, true
	}
	return n, about, ok
}

// place is slotOf without what is to be reconciled. It is called for every event of the watch.
func (p *placement) place(obj metav1.Object) (n slot.Slot, ok bool) {
	if p.Role.Owned() {
		n, _, ok = p.SlotOf(obj)
		return n, ok
	}
	return p.share.Slot(obj.GetNamespace(), obj.GetName(), string(obj.GetUID())), true
}

// mobile reports whether objects of one name may be in different slots over time.
func (p *placement) mobile() bool { return p.Role.Owned() || p.share.Key() == slot.KeyUID }

// noteTombstone remembers the slot of a deleted primary object: with key UID its name does not show it.
func (p *placement) noteTombstone(about sharding.Subject, n slot.Slot) {
	if p.Role.Primary && p.share.Key() == slot.KeyUID && p.share.Holds(n) {
		p.share.Tombstones.Add(about, n)
	}
}

// NoteGoneOwner remembers the slot of an owner that no store has, as its child shows it: with key UID the owner's name
// does not.
func (p *placement) NoteGoneOwner(about sharding.Subject, n slot.Slot) {
	if p.share.Key() != slot.KeyUID || !p.share.Holds(n) {
		return
	}
	if _, stored := p.share.Stored(about.Kind, about.Name); !stored {
		p.share.Tombstones.Add(about, n)
	}
}

// Orphans are objects of an owned kind without a controlling owner. The member that reconciles an owner may adopt them.
// Which member that will be, only the owner's selector shows. So every member holds all orphans, while children are
// sharded. In the stream, orphans have a separate slot, beyond the rota's. Each informer holds it while it holds any
// slot.
//
//   - An adopted object moves from that slot to its owner's, and an orphaned one moves back, as an object that gets
//     another owner does. Handlers that hear of one of the two slots get an update in both cases, like handlers of a
//     stock informer. If they got an addition, controllers that count what they created would count it twice.
//   - A list of gained slots shows the orphans as well, at its version. An object that left a gained slot for the
//     orphans before must be visible, even if the stream has not caught up. Orphans that the list does not show are
//     left alone: the stream says what became of them.
//   - Orphans have no label to select by, and selectors have no "or". So the kind is delivered as with Filter.

// held returns the slots that the informer has to hold.
func (p *placement) held() slot.Set {
	set := p.share.Held()
	if p.Role.Orphans && !set.Empty() {
		set.Add(p.share.OrphanSlot())
	}
	return set
}

// isOpen reports whether handlers may hear of a slot. The orphans' slot is open while any slot is.
func (p *placement) isOpen(n slot.Slot) bool {
	open := p.share.open.Load()
	if p.Role.Orphans && n == p.share.OrphanSlot() {
		return !open.Empty()
	}
	return open.Has(n)
}

// WithOrphans adds the orphans' slot to slots.
func (p *placement) WithOrphans(set slot.Set) slot.Set {
	if p.Role.Orphans && !set.Empty() {
		set.Add(p.share.OrphanSlot())
	}
	return set
}

// beside reports whether a list of slots shows an orphan that it was not asked for. Known ones are no news.
func (p *placement) beside(set slot.Set, obj any) bool {
	if !p.Role.Orphans || set.Has(p.share.OrphanSlot()) {
		return false
	}
	n, _, ok := p.SlotOf(obj)
	return ok && n == p.share.OrphanSlot()
}

// moved passes on that an object got an owner, another owner, or none.
func (h *handler) moved(old, obj any, before slot.Slot, about sharding.Subject, n slot.Slot, has bool) {
	heard := h.hearsOrMisses(before, about)
	if h.user != nil && (heard || has && h.hears(n)) {
		h.user.OnUpdate(old, obj)
	}
}
