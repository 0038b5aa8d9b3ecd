package controllers

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Keeper has something of the hash slots besides a Share: the keys of a dispatcher. A rota with a Keeper tells it of
// every slot. Warm, Load and CatchUp run in goroutines of their own; the other methods must not block. For one slot the
// calls are in order: perhaps Warm, Load until it succeeds, Open, perhaps Drain, perhaps Open again, and Shut.
type Keeper interface {
	// Kinds are the kinds that it has, in the form of schema.GroupKind. All members should have the same.
	Kinds() []string
	// Address is what others have to know to reach it; empty: nothing.
	Address() string
	// Warm begins to follow the slots' objects. In a planned move, the slots' owner drains them only when Warm has
	// returned: what happens after the owner has caught up, this member hears of. It is called again if it fails.
	Warm(ctx context.Context, set slot.Set) error
	// Load makes it complete for the slots. handed says that their former owner has drained them and handed them over;
	// otherwise it died, there was none, or it was this member until its Lease lapsed. gone are deletions that it left. It
	// is called again if it fails, and may be for slots that were loaded before. The context ends with the member.
	Load(ctx context.Context, set slot.Set, handed bool, gone []table.Gone) error
	// Open says that work on the slots may begin. It calls off a Drain.
	Open(set slot.Set, epoch uint64)
	// CatchUp returns when it has heard of everything that happened to the slots' objects before the call. It comes
	// before Drain. If it fails, the slots are drained all the same.
	CatchUp(ctx context.Context, set slot.Set) error
	// Drain ends work on the slots: nothing new is begun. It calls idle once for each slot in which nothing is in flight
	// any more, unless Open or Shut comes before. gone are deletions that are left to the slot's next owner.
	Drain(set slot.Set, idle func(s slot.Slot, gone []table.Gone))
	// Shut says that others may work on the slots from now on, and drops everything about them. It may come for slots
	// that were never loaded.
	Shut(set slot.Set)
	// SetDeadline tells until when the member may work, by the clock Parts.Late. It may fall.
	SetDeadline(at time.Duration)
	// Flights is what has been in flight for longer than a time.
	Flights(older time.Duration) []gate.Flight
}
