package delivery

import (
	"github.com/rota-dev/rota/internal/delivery/sharding"
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

// held returns the slots that the informer has to hold.
func (i *informer) held() slot.Set {
	set := i.share.Held()
	if i.role.Orphans && !set.Empty() {
		set.Add(i.share.OrphanSlot())
	}
	return set
}

// isOpen reports whether handlers may hear of a slot. The orphans' slot is open while any slot is.
func (i *informer) isOpen(n slot.Slot) bool {
	open := i.share.open.Load()
	if i.role.Orphans && n == i.share.OrphanSlot() {
		return !open.Empty()
	}
	return open.Has(n)
}

// withOrphans adds the orphans' slot to slots.
func (i *informer) withOrphans(set slot.Set) slot.Set {
	if i.role.Orphans && !set.Empty() {
		set.Add(i.share.OrphanSlot())
	}
	return set
}

// beside reports whether a list of slots shows an orphan that it was not asked for. Known ones are no news.
func (i *informer) beside(set slot.Set, obj any) bool {
	if !i.role.Orphans || set.Has(i.share.OrphanSlot()) {
		return false
	}
	n, _, ok := i.slotOf(obj)
	return ok && n == i.share.OrphanSlot()
}

// moved passes on that an object got an owner, another owner, or none.
func (h *handler) moved(old, obj any, before slot.Slot, about sharding.Subject, n slot.Slot, has bool) {
	heard := h.hearsOrMisses(before, about)
	if h.user != nil && (heard || has && h.hears(n)) {
		h.user.OnUpdate(old, obj)
	}
}
