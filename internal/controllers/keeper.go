package controllers

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

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
