package controllers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/slot"
)

const (
	// ProgramQueue is the queue of a Keeper's flights that are programs.
	ProgramQueue = "rota.dev/run"
	// keeperQueue is the name of a keeper's queue in logs.
	keeperQueue = "rota.dev/keeper"
)

// HolderEnv is the environment of a Holder.
type HolderEnv struct {
	Controllers *Set
	Keeper      Keeper
	// HeldBackBy describes the reconciles that hold slots back.
	HeldBackBy func(slot.Set) []string
	// Abandoned is called for each slot that is given up with deletions no next owner learns about. Inherited is called
	// for each deletion that a former owner left to this member.
	Abandoned, Inherited func()
}

// Holder holds the slots of objects: the objects themselves and a keeper's data about them. A slot is drained when both
// have drained it.
type Holder struct {
	*objectHolder
	calls keeperCalls
}

var _ replica.Blocking = (*Holder)(nil)

// NewHolder returns the holder of an incarnation.
func NewHolder(env HolderEnv) *Holder {
	return &Holder{&objectHolder{HolderEnv: env, env: &env.Controllers.env},
		keeperCalls{keeper: env.Keeper}}
}

// Warm implements replica.Blocking.
func (k *Holder) Warm(ctx context.Context, set slot.Set) (slot.Set, error) {
	return k.both(func() (slot.Set, error) { return k.objectHolder.Warm(ctx, set) },
		func(set slot.Set) error { return k.Keeper.Warm(ctx, set) })
}

// Load implements replica.Blocking.
func (k *Holder) Load(ctx context.Context, a member.Load) (slot.Set, error) {
	return k.both(func() (slot.Set, error) { return k.objectHolder.Load(ctx, a) },
		func(set slot.Set) error { return k.Keeper.Load(ctx, set, handed(a), a.Gone) })
}

// both prepares slots, first their objects and then the keeper. It drops slots that are released meanwhile.
func (k *Holder) both(objects func() (slot.Set, error), keeper func(slot.Set) error) (slot.Set, error) {
	set, err := objects()
	if err != nil || set.Empty() {
		return set, err
	}
	err = keeper(set.Intersect(k.env.Share.Held()))
	if released := set.Minus(k.env.Share.Held()); !released.Empty() {
		k.calls.shut(released)
	}
	return set, err
}

// Open implements replica.Blocking.
func (k *Holder) Open(ctx context.Context, set slot.Set, epoch uint64) (rest func()) {
	rest = k.objectHolder.Open(ctx, set, epoch)
	k.calls.open(set, epoch)
	return rest
}

// CatchUp waits until the watches have caught up and the objects of opened slots are enqueued: the drain must see
// deletions that the next owner's list does not show (rule R15).
func (k *Holder) CatchUp(ctx context.Context, set slot.Set) error {
	err := errors.Join(k.env.Share.CatchUp(ctx, set), k.Keeper.CatchUp(ctx, set))
	k.gathered()
	return err
}

// Drain implements replica.Blocking.
func (k *Holder) Drain(d replica.Drain) (look func() (more bool)) {
	drained := d.Idle
	k.calls.drain(d.Slots)
	d.Idle = func(s slot.Slot, gone []table.Gone) {
		k.calls.idle(s, func(s slot.Slot, left []table.Gone) {
			left = k.fitting(s, keeperQueue, left, d.Room-table.GoneSize(gone))
			drained(s, append(gone, left...))
		})
	}
	return k.objectHolder.Drain(d)
}

// Shut implements replica.Blocking.
func (k *Holder) Shut(set slot.Set) {
	k.env.Gate.Shut(set)
	k.calls.shut(set)
	k.silence(set)
}

// Release implements replica.Blocking.
func (k *Holder) Release(set slot.Set) {
	k.calls.shut(set)
	k.objectHolder.Release(set)
}

// keeperCalls puts the calls of a Keeper in order: the gate may say that a slot is idle after the slot was opened again
// or shut.
type keeperCalls struct {
	keeper Keeper

	mu       sync.Mutex
	draining slot.Set
}

// drain notes that slots are to be drained. idle follows for each.
func (k *keeperCalls) drain(set slot.Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.draining = k.draining.Union(set)
}

// idle drains a slot of which the gate has nothing in flight, unless it was opened or shut meanwhile.
func (k *keeperCalls) idle(s slot.Slot, drained func(slot.Slot, []table.Gone)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.draining.Has(s) {
		k.keeper.Drain(slot.SetOf(slot.Range{First: s, Last: s}), drained)
	}
}

func (k *keeperCalls) open(set slot.Set, epoch uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.draining = k.draining.Minus(set)
	k.keeper.Open(set, epoch)
}

func (k *keeperCalls) shut(set slot.Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.draining = k.draining.Minus(set)
	k.keeper.Shut(set)
}

// NoKeeper is the Keeper of a rota without one.
type NoKeeper struct{}

// Kinds implements Keeper.
func (NoKeeper) Kinds() []string { return nil }

// Address implements Keeper.
func (NoKeeper) Address() string { return "" }

// Warm implements Keeper.
func (NoKeeper) Warm(context.Context, slot.Set) error { return nil }

// Load implements Keeper.
func (NoKeeper) Load(context.Context, slot.Set, bool, []table.Gone) error { return nil }

// Open implements Keeper.
func (NoKeeper) Open(slot.Set, uint64) {}

// CatchUp implements Keeper.
func (NoKeeper) CatchUp(context.Context, slot.Set) error { return nil }

// Shut implements Keeper.
func (NoKeeper) Shut(slot.Set) {}

// SetDeadline implements Keeper.
func (NoKeeper) SetDeadline(time.Duration) {}

// Flights implements Keeper.
func (NoKeeper) Flights(time.Duration) []gate.Flight { return nil }

// Drain implements Keeper.
func (NoKeeper) Drain(set slot.Set, idle func(s slot.Slot, gone []table.Gone)) {
	for _, s := range set.Slots() {
		idle(s, nil)
	}
}

// Keeper holds data about the hash slots in addition to a Share: the keys of a dispatcher. The rota calls its Keeper
// for every slot. Warm, Load and CatchUp run in separate goroutines; the other methods must not block. For one slot the
// order of calls is: optionally Warm; Load until it succeeds; Open; optionally Drain and Open again; Shut.
type Keeper interface {
	// Kinds returns the kinds it handles, in the form of schema.GroupKind. All members should have the same kinds.
	Kinds() []string
	// Address returns the address at which other processes reach it, empty if they need none.
	Address() string
	// Warm begins to follow the slots' objects. In a planned move, the owner drains the slots only after Warm has
	// returned, so this member sees everything that happens after the owner has caught up. It is called again if it fails.
	Warm(ctx context.Context, set slot.Set) error
	// Load completes the data for the slots. handed is true if their former owner has drained them and handed them over;
	// otherwise it died, there was none, or it was this member until its Lease lapsed. gone are the deletions that the
	// former owner left. Load is called again if it fails, and possibly for slots that were loaded before. The context
	// ends with the member.
	Load(ctx context.Context, set slot.Set, handed bool, gone []table.Gone) error
	// Open allows work on the slots. It cancels a Drain.
	Open(set slot.Set, epoch uint64)
	// CatchUp returns when it has seen everything that happened to the slots' objects before the call. It is called before
	// Drain. If it fails, the slots are drained anyway.
	CatchUp(ctx context.Context, set slot.Set) error
	// Drain ends work on the slots: nothing new is begun. It calls idle once for each slot that has nothing in flight any
	// more, unless Open or Shut comes first. gone are the deletions left to the slot's next owner.
	Drain(set slot.Set, idle func(s slot.Slot, gone []table.Gone))
	// Shut announces that other members may work on the slots from now on, and drops all data about them. It may be called
	// for slots that were never loaded.
	Shut(set slot.Set)
	// SetDeadline sets until when the member may work, on the clock Parts.Late. The deadline may move earlier.
	SetDeadline(at time.Duration)
	// Flights returns the keys that have been in flight for longer than the given time.
	Flights(older time.Duration) []gate.Flight
}
