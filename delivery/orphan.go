package delivery

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Orphans, objects of an owned kind without a controlling owner, belong to nobody, and whoever reconciles an owner may
// adopt them: which of the members that is only a selector in the owner tells. So orphans are whole, children are
// shared. To the stream orphans are a slot of their own, beyond those of the rota, that each informer holds while it
// holds any:
//
//   - an object that is adopted goes from that slot to its owner's, and one that is orphaned comes back, as one that
//     gets another owner does. Handlers hear of either as an update, as those of a stock informer do, wherever they
//     hear of one of the two slots: for controllers that count what they made, an addition would be one more.
//   - a list of slots that are gained shows the orphans, too, at its version: what left a gained slot for the orphans
//     before must not be out of sight until the stream has caught up. Those that it does not show are left alone, since
//     the stream tells what became of them.
//   - they have no label that a selector could ask for, and selectors know no "or": the kind is delivered as with
//     Filter.

// AddOrphans has the informers of an owned kind hold orphans as well, on every member. Own must have been called for
// the kind, and no informer of it run; there must be fewer than slot.MaxCount slots.
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
		return fmt.Errorf("kind %s: orphans take a slot beside the rota's %d: use at most %d slots, or leave orphans out", kind, s.slots, slot.MaxCount/2)
	}
	if err := s.settledRole(kind, r.asOwned); err != nil {
		return err
	}
	r.orphans = true
	s.roles[kind] = r
	if s.delivery == SlotLabel || s.delivery == ShardSelector {
		s.log.Info("Every member is sent all objects of this kind, and keeps its share and the orphans: these have no label to select them by",
			"kind", kind.String(), "delivery", s.delivery.String())
	}
	return nil
}

// orphanSlot is where the orphans are, of informers that hold them.
func (s *Share) orphanSlot() slot.Slot { return slot.Slot(s.slots) } //nolint:gosec // below slot.MaxCount: see AddOrphans

// adoptable says that an object is an orphan, and that the informer holds these.
func (i *informer) adoptable(obj metav1.Object) bool {
	return i.role.orphans && metav1.GetControllerOfNoCopy(obj) == nil
}

// held returns the slots that the informer is to hold.
func (i *informer) held() slot.Set {
	set := i.share.Held()
	if i.role.orphans && !set.Empty() {
		set.Add(i.share.orphanSlot())
	}
	return set
}

// isOpen says whether handlers may hear of a slot: of orphans while any slot is open.
func (i *informer) isOpen(n slot.Slot) bool {
	open := i.share.open.Load()
	if i.role.orphans && n == i.share.orphanSlot() {
		return !open.Empty()
	}
	return open.Has(n)
}

// withOrphans returns slots with that of the orphans.
func (i *informer) withOrphans(set slot.Set) slot.Set {
	if i.role.orphans && !set.Empty() {
		set.Add(i.share.orphanSlot())
	}
	return set
}

// beside says that a list of slots shows an orphan although that was not asked for: those that are known are no news.
func (i *informer) beside(set slot.Set, obj any) bool {
	if !i.role.orphans || set.Has(i.share.orphanSlot()) {
		return false
	}
	n, _, ok := i.slotOf(obj)
	return ok && n == i.share.orphanSlot()
}

// moved passes on that an object got an owner, another one, or none.
func (h *handler) moved(old, obj any, before slot.Slot, about subject, n slot.Slot, has bool) {
	heard := h.hearsOrMisses(before, about)
	if h.user != nil && (heard || has && h.hears(n)) {
		h.user.OnUpdate(old, obj)
	}
}
