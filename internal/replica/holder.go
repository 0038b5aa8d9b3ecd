package replica

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Owner holds what belongs to slots: cached objects, a dispatcher's keys, or duties. The driver calls it when a slot
// changes state. Its methods must not block, because the same goroutine renews the Lease. Holder and Blocking add the
// operations that take time; they differ in how they report the end of one.
//
// The calls for a slot come in this order: Hold and Warm, which may be left out; Expect; Load; Open. CatchUp, Drain,
// Shut and Release may come at any time, even while other calls run. After any of these four the sequence may start
// again. Each method may be called more than once.
type Owner interface {
	// Hold announces that slots may come here. The owner fetches their contents from now on.
	Hold(set slot.Set)
	// Expect announces that slots were given to this member and that Load follows. later is true if Load has to wait for
	// something else first, so that data fetched now may be stale by then.
	Expect(a member.Load, later bool)
	// Drain ends work on slots. It starts no work that can be left to the next owner. look is called every reviewPeriod,
	// in a separate goroutine, as long as it returns true.
	Drain(d Drain) (look func() (more bool))
	// Shut announces that other members may work on the slots from now on.
	Shut(set slot.Set)
	// Release drops the slots' contents.
	Release(set slot.Set)
	// HeldBack describes, in sentences, what keeps some of the slots from moving.
	HeldBack(set slot.Set) []string
	// Abandon logs work that no member will do, because this member ends before it has drained the slots.
	Abandon(set slot.Set)
}

// Holder is an Owner that calls done once when an operation has finished, in any goroutine, possibly before the method
// returns. It does not call done if the incarnation ends first.
type Holder interface {
	Owner
	// Warm fetches the slots' contents except for the latest changes (rule R8). held are the slots that were not released
	// meanwhile.
	Warm(set slot.Set, done func(held slot.Set))
	// Load makes the slots' contents complete (rule R8). It is called again with another cause if another member may have
	// worked meanwhile. held is as for Warm.
	Load(a member.Load, done func(held slot.Set))
	// Open begins work on the slots, owned since epoch. It cancels a drain.
	Open(set slot.Set, epoch uint64)
	// CatchUp waits until all changes that were made in the slots before the call have arrived, or for a limited time.
	CatchUp(set slot.Set, done func())
}

// Blocking is an Owner whose methods return when an operation has finished. Warm, Load, CatchUp and the function that
// Open returns are called in separate goroutines.
type Blocking interface {
	Owner
	// Warm and Load are called again if they fail.
	Warm(ctx context.Context, set slot.Set) (held slot.Set, err error)
	Load(ctx context.Context, a member.Load) (held slot.Set, err error)
	// Open is like Holder.Open. rest does what takes longer; it is nil if there is nothing left to do.
	Open(ctx context.Context, set slot.Set, epoch uint64) (rest func())
	// CatchUp is like Holder.CatchUp. If it fails, the slots are drained anyway.
	CatchUp(ctx context.Context, set slot.Set) error
}

// Part is a holder with its slots.
type Part struct {
	Holder
	Slots slot.Set
}

// Drain is the drain of some slots of a holder.
type Drain struct {
	Slots slot.Set
	// Room is how many bytes of deletions fit into the table, as counted by table.GoneSize.
	Room int
	// Idle is called once for each slot that has nothing in flight any more, with the deletions left to its next owner. It
	// does not block.
	Idle func(s slot.Slot, gone []table.Gone)
	// LeaveBy returns the time, on the monotonic clock, from which only the given fraction of a leaving member's handover
	// time is left. It is math.MaxInt64 while the member is not leaving.
	LeaveBy func(part float64) time.Duration
	// Cut is called with keys whose reconciles were cut short. It does not block.
	Cut func(keys []gate.Key)
}

// cutAfter is how long a reconcile must have been in flight before a leaving member cuts it short to let its slot move.
// Most end sooner.
const cutAfter = time.Second

// Review updates the gate's drains. If a leaving member has only the handover time left, Review cuts short reconciles
// that have been in flight for long; the slot's next owner repeats them. parked is as for gate.Review.
func (d Drain) Review(g *gate.Gate, now time.Duration) (parked []gate.Key, more bool) {
	if now >= d.LeaveBy(1) {
		if cut := g.Cut(d.Slots, cutAfter); len(cut) > 0 {
			d.Cut(cut)
		}
	}
	return g.Review(d.Slots)
}

// patience bounds how long the CatchUp of a Blocking may take before its slots are drained. They stay open meanwhile. A
// watch has caught up at its next event or, for a kind without traffic, at its next bookmark, which may take longer
// than this. A deletion is missed only if the kind's watch lags by more than patience.
const patience = 10 * time.Second

// waits adapts a Blocking to Holder by goroutines.
type waits struct {
	Blocking
	calls *Calls
}

// Wait returns a Holder that calls the methods of a Blocking in goroutines of calls, until these end.
func Wait(of Blocking, calls *Calls) Holder { return waits{of, calls} }

func (w waits) Warm(set slot.Set, done func(held slot.Set)) {
	w.calls.retry("warm", set, w.Blocking.Warm, done)
}

func (w waits) Load(a member.Load, done func(held slot.Set)) {
	w.calls.retry("load", a.Slots, func(ctx context.Context, set slot.Set) (slot.Set, error) {
		a.Slots = set
		return w.Blocking.Load(ctx, a)
	}, done)
}

func (w waits) Open(set slot.Set, epoch uint64) {
	if rest := w.Blocking.Open(w.calls.ctx, set, epoch); rest != nil {
		w.calls.Go(rest)
	}
}

func (w waits) CatchUp(set slot.Set, done func()) {
	w.calls.Go(func() {
		ctx, cancel := context.WithTimeout(w.calls.ctx, patience)
		defer cancel()
		if err := w.Blocking.CatchUp(ctx, set); err != nil && w.calls.ctx.Err() == nil {
			w.calls.log.V(1).Info("Handing over without proof that the watches have caught up", "cause", err.Error())
		}
		done()
	})
}
