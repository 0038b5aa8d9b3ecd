package rota

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/slot"
)

// dispatcherQueue is the name of a keeper's queue in logs.
const dispatcherQueue = "rota.dev/dispatcher"

// kept is the holder of slots that have a keeper beside their objects. A slot is drained when both have drained it.
type kept struct {
	*objectHolder
	keeper adapter.Keeper
}

func (k *kept) Warm(ctx context.Context, set slot.Set) (slot.Set, error) {
	return k.both(func() (slot.Set, error) { return k.objectHolder.Warm(ctx, set) },
		func(set slot.Set) error { return k.keeper.Warm(ctx, set) })
}

func (k *kept) Load(ctx context.Context, a member.Load) (slot.Set, error) {
	return k.both(func() (slot.Set, error) { return k.objectHolder.Load(ctx, a) },
		func(set slot.Set) error { return k.keeper.Load(ctx, set, handed(a), a.Gone) })
}

// both has the keeper do with slots what was done with their objects. It drops those that are released meanwhile.
func (k *kept) both(objects func() (slot.Set, error), keeper func(slot.Set) error) (slot.Set, error) {
	set, err := objects()
	if err != nil || set.Empty() {
		return set, err
	}
	err = keeper(set.Intersect(k.rota.share.Held()))
	if released := set.Minus(k.rota.share.Held()); !released.Empty() {
		k.keeper.Shut(released)
	}
	return set, err
}

func (k *kept) Open(ctx context.Context, set slot.Set, epoch uint64) (rest func()) {
	rest = k.objectHolder.Open(ctx, set, epoch)
	k.keeper.Open(set, epoch)
	return rest
}

// CatchUp waits for the watches, and until opened slots' objects are enqueued: the drain has to know of the deletions
// that the next owner's list does not show (rule R15).
func (k *kept) CatchUp(ctx context.Context, set slot.Set) error {
	err := errors.Join(k.rota.share.CatchUp(ctx, set), k.keeper.CatchUp(ctx, set))
	k.gathered()
	return err
}

func (k *kept) Drain(d replica.Drain) (look func() (more bool)) {
	drained := d.Idle
	d.Idle = func(s slot.Slot, gone []table.Gone) {
		k.keeper.Drain(slot.SetOf(slot.Range{First: s, Last: s}), func(s slot.Slot, left []table.Gone) {
			left = k.rota.fitting(s, dispatcherQueue, left, d.Room-table.GoneSize(gone))
			drained(s, append(gone, left...))
		})
	}
	return k.objectHolder.Drain(d)
}

func (k *kept) Shut(set slot.Set) {
	k.rota.gate.Shut(set)
	k.keeper.Shut(set)
	k.silence(set)
}

func (k *kept) Release(set slot.Set) {
	k.keeper.Shut(set)
	k.objectHolder.Release(set)
}

// inFlight is how much is in flight.
func (r *Rota) inFlight() int { return r.gate.InFlight() + len(r.keeper.Flights(0)) }

// noKeeper is the keeper of a rota without one.
type noKeeper struct{}

func (noKeeper) Kinds() []string                                          { return nil }
func (noKeeper) Address() string                                          { return "" }
func (noKeeper) Warm(context.Context, slot.Set) error                     { return nil }
func (noKeeper) Load(context.Context, slot.Set, bool, []table.Gone) error { return nil }
func (noKeeper) Open(slot.Set, uint64)                                    {}
func (noKeeper) CatchUp(context.Context, slot.Set) error                  { return nil }
func (noKeeper) Shut(slot.Set)                                            {}
func (noKeeper) SetDeadline(time.Duration)                                {}
func (noKeeper) Flights(time.Duration) []gate.Flight                      { return nil }
func (noKeeper) Drain(set slot.Set, idle func(s slot.Slot, gone []table.Gone)) {
	for _, s := range set.Slots() {
		idle(s, nil)
	}
}
