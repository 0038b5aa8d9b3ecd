package rota

import (
	"slices"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// dispatcherQueue is the name of a keeper's queue in logs.
const dispatcherQueue = "rota.dev/dispatcher"

func (r *Rota) shutKeeper(set slot.Set) {
	if r.keeper != nil && !set.Empty() {
		r.keeper.Shut(set)
	}
}

// keeps says whether there is a keeper of the kind.
func (r *Rota) keeps(kind string) bool {
	return r.keeper != nil && slices.Contains(r.keeper.Kinds(), kind)
}

// inFlight is how much is in flight.
func (r *Rota) inFlight() int {
	n := r.gate.InFlight()
	if r.keeper != nil {
		n += len(r.keeper.Flights(0))
	}
	return n
}

// drainKeeper reports a slot that has drained but for the keeper, once that has drained it, too. gone are deletions
// that controllers leave to the slot's next owner.
func (i *incarnation) drainKeeper(a member.Drain, s slot.Slot, gone []table.Gone) {
	if i.rota.keeper == nil {
		i.drained(a.Round, s, gone)
		return
	}
	i.rota.keeper.Drain(slot.SetOf(slot.Range{First: s, Last: s}), func(s slot.Slot, left []table.Gone) {
		left = i.fitting(s, dispatcherQueue, left, a.Room-table.GoneSize(gone))
		i.drained(a.Round, s, append(gone, left...))
	})
}

// warmKeeper has the keeper follow those of the slots that are still held, and drops those that are released meanwhile.
func (i *incarnation) warmKeeper(set slot.Set) error {
	err := i.rota.keeper.Warm(i.ctx, set.Intersect(i.rota.share.Held()))
	i.rota.shutKeeper(set.Minus(i.rota.share.Held()))
	return err
}

// loadKeeper has the keeper load those of the slots that are still held, and drops those that are released meanwhile.
func (i *incarnation) loadKeeper(set slot.Set, handed bool, gone []table.Gone) error {
	err := i.rota.keeper.Load(i.ctx, set.Intersect(i.rota.share.Held()), handed, gone)
	i.rota.shutKeeper(set.Minus(i.rota.share.Held()))
	return err
}
