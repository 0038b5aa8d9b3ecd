package replica

import (
	"context"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Owner has something of slots: objects, the keys of a dispatcher, or duties. The driver tells it what becomes of the
// slots. Its methods must not block: who calls them renews the Lease. For what takes time there are Holder, and
// Blocking, which wait for it in different ways.
//
// For one slot, Hold and Warm may come first, or not at all. Expect comes before Load, and Load before Open. CatchUp
// and Drain may come at any time, and so may Shut and Release, also while others run. After any of them the slot may
// begin anew, and each may come more than once.
type Owner interface {
	// Hold says that slots may come here: what they have is fetched from now on.
	Hold(set slot.Set)
	// Expect says that slots were given to this member, so that Load comes. later says that something else comes before
	// that: what is fetched now may be old by then.
	Expect(a member.Load, later bool)
	// Drain ends work on slots: nothing is begun that can be left to the next owner. look is called every reviewPeriod, in
	// a goroutine of its own, as long as it returns true.
	Drain(d Drain) (look func() (more bool))
	// Shut says that others may work on the slots from now on.
	Shut(set slot.Set)
	// Release drops what the slots have.
	Release(set slot.Set)
	// HeldBack says what keeps some of the slots from moving on, in sentences.
	HeldBack(set slot.Set) []string
	// Abandon tells of what nobody may do, because this member ends before it has drained the slots.
	Abandon(set slot.Set)
}

// Holder is an Owner that calls done once, when something is done: in any goroutine, or before it returns. It never
// does if the incarnation ends before.
type Holder interface {
	Owner
	// Warm is done when what the slots have is here, but for the latest changes (rule R8). held are those of the slots
	// that were not released meanwhile.
	Warm(set slot.Set, done func(held slot.Set))
	// Load is done when what the slots have is complete (rule R8). It is called again, with another cause, if somebody
	// else may have worked meanwhile. held is as with Warm.
	Load(a member.Load, done func(held slot.Set))
	// Open begins work on the slots, owned since epoch. It calls off a drain.
	Open(set slot.Set, epoch uint64)
	// CatchUp is done when everything is known that happened in the slots before the call, or after a while.
	CatchUp(set slot.Set, done func())
}

// Blocking is an Owner whose methods return when something is done. Warm, Load, CatchUp and what Open returns are
// called in goroutines of their own.
type Blocking interface {
	Owner
	// Warm and Load are called again if they fail.
	Warm(ctx context.Context, set slot.Set) (held slot.Set, err error)
	Load(ctx context.Context, a member.Load) (held slot.Set, err error)
	// Open is as with Holder. rest does what takes longer; nil: nothing does.
	Open(ctx context.Context, set slot.Set, epoch uint64) (rest func())
	// CatchUp is as with Holder. If it fails, the slots are drained all the same.
	CatchUp(ctx context.Context, set slot.Set) error
}

// Part is those of the slots that a holder has.
type Part struct {
	Holder
	Slots slot.Set
}

// Drain is a drain of some of a holder's slots.
type Drain struct {
	Slots slot.Set
	// Room is for how many bytes of deletions there is room in the table, as counted by table.GoneSize.
	Room int
	// Idle is called once for each slot in which nothing is in flight any more, with the deletions left to its next owner.
	// It does not block.
	Idle func(s slot.Slot, gone []table.Gone)
	// LeaveBy returns when only a part of the time that a leaving member keeps for the handover is left, on its monotonic
	// clock. Without a leave that is math.MaxInt64.
	LeaveBy func(part float64) time.Duration
	// Cut is called with keys whose reconciles were cut short. It does not block.
	Cut func(keys []gate.Key)
}

// cutAfter is how long a reconcile must have been in flight before a leaving member cuts it short to let its slot move.
// Most end by themselves sooner.
const cutAfter = time.Second

// Review has the gate look at the drain. A leaving member that has left no more time than the handover needs cuts short
// what has been in flight for long. The slot's next owner repeats the reconcile. parked is as with gate.Review.
func (d Drain) Review(g *gate.Gate, now time.Duration) (parked []gate.Key, more bool) {
	if now >= d.LeaveBy(1) {
		if cut := g.Cut(d.Slots, cutAfter); len(cut) > 0 {
			d.Cut(cut)
		}
	}
	return g.Review(d.Slots)
}

// patience bounds how long a Blocking's CatchUp may take before its slots are drained. They are open meanwhile. A watch
// has caught up when its next event comes, or for a kind without traffic a bookmark, which can take longer than this.
// If it does, a deletion is missed only if the watch of its kind lags by more.
const patience = 10 * time.Second

// waits has goroutines wait for a Blocking.
type waits struct {
	Blocking
	calls *Calls
}

// Wait returns a Holder that calls of's methods in goroutines of calls, and until the calls end.
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
