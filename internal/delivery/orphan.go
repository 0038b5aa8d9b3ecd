package delivery

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Orphans are objects of an owned kind without a controlling owner. Whoever reconciles an owner may adopt them. Which
// member that will be, only the owner's selector tells. So every member holds all orphans, while children are sharded.
// In the stream, orphans have a slot of their own, beyond those of the rota. Each informer holds it while it holds any
// slot.
//
//   - An adopted object moves from that slot to its owner's, and an orphaned one moves back, as an object that gets
//     another owner does. Handlers hear of both as an update if they hear of one of the two slots, as those of a stock
//     informer do: controllers that count what they created would count an addition once more.
//   - A list of gained slots shows the orphans as well, at its version. An object that left a gained slot for the
//     orphans before must be visible, even if the stream has not caught up. Orphans that the list does not show are
//     left alone: the stream says what became of them.
//   - Orphans have no label to select by, and selectors have no "or". So the kind is delivered as with Filter.

// AddOrphans has the informers of an owned kind hold orphans as well, on every member. It returns an error if Own was
// not called for the kind, if an informer of it runs, or if there are slot.MaxCount slots.
func (s *Share) AddOrphans(kind schema.GroupKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	switch {
	case r.orphans:
		return nil
	case r.owners == nil:
		return fmt.Errorf("kind %s: orphans are delivered of kinds that are owned only", kind)
	case s.slots >= slot.MaxCount:
		return fmt.Errorf("kind %s: orphans take a slot beside the rota's %d: use at most %d slots, or leave orphans out",
			kind, s.slots, slot.MaxCount/2)
	}
	if err := s.checkNotRunning(kind, r.asOwned); err != nil {
		return err
	}
	r.orphans = true
	s.roles[kind] = r
	if s.delivery == SlotLabel || s.delivery == ShardSelector {
		s.log.Info("Every member is sent all objects of this kind, and keeps its share and the orphans: these have no label "+
			"to select them by",
			"kind", kind.String(), "delivery", s.delivery.String())
	}
	return nil
}

// orphanSlot is the slot of the orphans, in informers that hold them.
func (s *Share) orphanSlot() slot.Slot {
	return slot.Slot(s.slots) // below slot.MaxCount: see AddOrphans
}

// adoptable reports whether an object is an orphan and the informer holds orphans.
func (i *informer) adoptable(obj metav1.Object) bool {
	return i.role.orphans && metav1.GetControllerOfNoCopy(obj) == nil
}

// held returns the slots that the informer has to hold.
func (i *informer) held() slot.Set {
	set := i.share.Held()
	if i.role.orphans && !set.Empty() {
		set.Add(i.share.orphanSlot())
	}
	return set
}

// isOpen reports whether handlers may hear of a slot. The orphans' slot is open while any slot is.
func (i *informer) isOpen(n slot.Slot) bool {
	open := i.share.open.Load()
	if i.role.orphans && n == i.share.orphanSlot() {
		return !open.Empty()
	}
	return open.Has(n)
}

// withOrphans adds the orphans' slot to slots.
func (i *informer) withOrphans(set slot.Set) slot.Set {
	if i.role.orphans && !set.Empty() {
		set.Add(i.share.orphanSlot())
	}
	return set
}

// beside reports whether a list of slots shows an orphan that it was not asked for. Known ones are no news.
func (i *informer) beside(set slot.Set, obj any) bool {
	if !i.role.orphans || set.Has(i.share.orphanSlot()) {
		return false
	}
	n, _, ok := i.slotOf(obj)
	return ok && n == i.share.orphanSlot()
}

// moved passes on that an object got an owner, another owner, or none.
func (h *handler) moved(old, obj any, before slot.Slot, about subject, n slot.Slot, has bool) {
	heard := h.hearsOrMisses(before, about)
	if h.user != nil && (heard || has && h.hears(n)) {
		h.user.OnUpdate(old, obj)
	}
}
