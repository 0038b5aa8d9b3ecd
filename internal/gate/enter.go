package gate

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/slot"
)

// entry is a key in flight, and the context that its reconciler gets.
type entry struct {
	context.Context //nolint:containedctx // the reconciler's context
	cancel          context.CancelCauseFunc
	gate            *Gate
	key             Key
	slot            slot.Slot
	epoch           uint64
	since           time.Duration
	prev, next      *entry
	left            atomic.Bool
	// lost is why its slot no longer belongs to this member, nil while it does. The context may have ended earlier for
	// another reason.
	lost atomic.Pointer[error]
	// hold is true for an entry without key and context, task for a task (Extend), and gone if the key's object was gone.
	hold, task, gone bool
}

type (
	epochKey struct{}
	entryKey struct{}
)

// Value implements context.Context. It also serves EpochFrom, Ended and Extend.
func (e *entry) Value(key any) any {
	switch key.(type) {
	case epochKey:
		return e.epoch
	case entryKey:
		return e
	}
	return e.Context.Value(key)
}

// EpochFrom returns the epoch for which the slot of the key being reconciled was activated. It is a fencing token for
// systems outside Kubernetes (rule R12): a higher epoch always belongs to a later owner. ok is false unless ctx is, or
// is derived from, the context of an admitted key or a duty.
func EpochFrom(ctx context.Context) (epoch uint64, ok bool) {
	epoch, ok = ctx.Value(epochKey{}).(uint64)
	return epoch, ok
}

// Ended returns why nothing may be written any more for the admitted key of ctx: its slot was lost (ErrLost), the
// deadline passed (ErrExpired), or leave was called (context.Canceled). It returns nil if writes are still allowed,
// even if the context has ended for another reason such as a timeout or a handover, because the slot does not move
// before leave. Ended is meant for contexts made by context.WithoutCancel. It returns nil for contexts that do not stem
// from Enter or Extend.
func Ended(ctx context.Context) error {
	e, ok := ctx.Value(entryKey{}).(*entry)
	if !ok {
		return nil
	}
	if cause := e.lost.Load(); cause != nil {
		return *cause
	}
	if e.left.Load() {
		return context.Canceled
	}
	return nil
}

// Enter asks whether a key of slot s may be reconciled now. gone is true if the key's object is gone from the cache.
// While the slot drains, such keys are admitted until LeaveGone is called, and other keys while the drain is soft (see
// Drain).
//
// If and only if the verdict is Admitted, Enter returns a context and a leave. The context carries the epoch. It ends
// when the slot is lost or the deadline passes. Call leave when nothing more will be written for the key. Further calls
// do nothing.
func (g *Gate) Enter(ctx context.Context, s slot.Slot, key Key, gone bool) (context.Context, func(), Verdict) {
	g.mu.Lock()
	verdict := g.judge(s, key, gone)
	if verdict != Admitted {
		g.mu.Unlock()
		return nil, nil, verdict
	}
	st := &g.slots[s]
	e := &entry{gate: g, key: key, slot: s, epoch: st.epoch, since: g.now(), gone: gone}
	e.Context, e.cancel = context.WithCancelCause(ctx)
	g.put(st, e)
	g.mu.Unlock()
	return e, e.leave, Admitted
}

// put counts an entry as in flight.
func (g *Gate) put(st *slotState, e *entry) {
	e.next = st.first
	if st.first != nil {
		st.first.prev = e
	}
	st.first = e
	g.count(st, 1)
	if !e.hold && !e.task {
		st.busy(e.since, 1)
	}
}

func (g *Gate) judge(s slot.Slot, key Key, gone bool) Verdict {
	if int(s) >= len(g.slots) {
		return Refused
	}
	st := &g.slots[s]
	if st.state == shut {
		return Refused
	}
	late := g.now() >= g.deadline || st.state == lapsed
	if !late && (st.state == open || st.state == draining && st.drain.admits(g, st, key, gone)) {
		return Admitted
	}
	st.park(key, gone && st.state == draining && st.drain.leaves)
	if late {
		return Expired
	}
	return Parked
}

// park remembers a key. left is true if Review must not return it.
func (st *slotState) park(key Key, left bool) {
	if st.parked == nil {
		st.parked = map[Key]bool{}
	}
	st.parked[key] = left
	st.changes++
}

// admits reports whether a key may enter a slot that drains.
func (d *drain) admits(g *Gate, st *slotState, key Key, gone bool) bool {
	if gone {
		return !d.leaves
	}
	return !d.hard && g.fits(st, key)
}

func (e *entry) leave() {
	if e.left.Swap(true) {
		return
	}
	cut := false
	if !e.hold {
		cut = errors.Is(context.Cause(e), ErrHandover)
		e.cancel(context.Canceled)
	}
	g := e.gate
	g.mu.Lock()
	st := &g.slots[e.slot]
	if !e.hold && st.state != shut {
		st.learn(e.key, g.now()-e.since)
	}
	if cut && st.state == draining {
		st.park(e.key, e.gone) // if the slot stays, the key is reconciled again
	}
	g.take(st, e)
	drains := st.drain != nil
	g.mu.Unlock()
	if drains {
		g.Recheck(e.slot)
	}
}

// take undoes put.
func (g *Gate) take(st *slotState, e *entry) {
	if e.prev == nil {
		st.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	g.count(st, -1)
	if !e.hold && !e.task {
		now := g.now()
		st.busy(now, -1)
		g.hottest.add(now, e.key, e.slot, now-e.since)
	}
}

// Has reports whether a key has a reconcile in flight or a running task in slot s.
func (g *Gate) Has(s slot.Slot, key Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for e := g.slots[s].first; e != nil; e = e.next {
		if e.key == key && !e.hold {
			return true
		}
	}
	return slices.ContainsFunc(g.tasks[key], func(e *entry) bool { return e.slot == s })
}

func (g *Gate) count(st *slotState, n int) {
	st.inFlight += n
	st.changes++
	g.inFlight += n
}

// Hold counts something without a key as in flight in slot s until release is called, such as a write of unknown
// outcome or a wait for the fence (rules R6, R7). Further calls do nothing. A hold is possible in every state and is
// never canceled.
func (g *Gate) Hold(s slot.Slot) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := &entry{gate: g, slot: s, since: g.now(), hold: true}
	g.put(&g.slots[s], e)
	return e.leave
}
