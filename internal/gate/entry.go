package gate

import (
	"context"
	"errors"
	"maps"
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

var _ context.Context = (*entry)(nil)

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

// CutShort reports whether the context of an admitted key ended because its slot was lost or is handed over, or because
// the Lease was not renewed in time. The slot's next owner reconciles the key again, so the error need not be reported.
func CutShort(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, ErrLost) || errors.Is(cause, ErrExpired) || errors.Is(cause, ErrHandover)
}

// Verdict is the gate's answer for a key.
type Verdict uint8

// Verdicts.
const (
	// Unknown is the zero value: no verdict.
	Unknown Verdict = iota
	// Admitted keys are in flight until leave is called.
	Admitted
	// Refused keys are in a slot that this member does not own: drop them.
	Refused
	// Parked keys are in a slot that is about to move: drop them. If the slot stays, Open or Review returns them.
	Parked
	// Expired keys came after the deadline: drop them. They are also parked.
	Expired
)

// String returns the verdict in lower case.
func (v Verdict) String() string {
	return [...]string{"unknown", "admitted", "refused", "parked", "expired"}[v]
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

// admits reports whether a key may enter a slot that drains.
func (d *drain) admits(g *Gate, st *slotState, key Key, gone bool) bool {
	if gone {
		return !d.leaves
	}
	return !d.hard && g.fits(st, key)
}

// park remembers a key. left is true if Review must not return it.
func (st *slotState) park(key Key, left bool) {
	if st.parked == nil {
		st.parked = map[Key]bool{}
	}
	st.parked[key] = left
	st.changes++
}

// Owns reports whether slot s was opened and has neither been shut nor expired since. It may be draining.
func (g *Gate) Owns(s slot.Slot) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	state := g.slots[s].state
	return g.now() < g.deadline && state != shut && state != lapsed
}

// AdmitsGone reports whether a key of slot s whose object is gone would be admitted now.
func (g *Gate) AdmitsGone(s slot.Slot) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := &g.slots[s]
	return g.now() < g.deadline && (st.state == open || st.state == draining && !st.drain.leaves)
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

func (st *slotState) entries(into []*entry) []*entry {
	for e := st.first; e != nil; e = e.next {
		if !e.hold {
			into = append(into, e)
		}
	}
	return into
}

// lose cancels entries whose slots no longer belong to this member.
func lose(entries []*entry, cause error) {
	for _, e := range entries {
		e.lost.CompareAndSwap(nil, &cause)
	}
	cancel(entries, cause)
}

func cancel(entries []*entry, cause error) {
	for _, e := range entries {
		e.cancel(cause)
	}
}

// ErrNotInFlight is returned by Extend if its context does not belong to a key in flight.
var ErrNotInFlight = errors.New("the context does not belong to a running reconcile: it is another context, or the " +
	"reconcile has returned")

// ErrDeleted is the cause of contexts from Extend that end because the key's object was deleted.
var ErrDeleted = errors.New("the object of this key was deleted")

// Extend begins a task: work that continues after the reconcile of ctx has returned, such as a goroutine that watches
// something for its object. It returns a context with the values of ctx that does not end with ctx. The context ends
// when
//
//   - the slot's drain becomes hard or is cut (ErrHandover); a soft drain may last long;
//   - the slot is lost (ErrLost), or the deadline passes (ErrExpired);
//   - EndTasks is called (ErrDeleted).
//
// If one of these has already happened, the context has ended. After its context has ended, the task counts as in
// flight until leave is called, so that a drain waits for it.
//
// Call leave when nothing more will be written for the key. Further calls do nothing. again is true if the context had
// to end but the slot is open; the caller then enqueues the key. If the slot drains, Review or Open returns the key.
//
// Extend returns ErrNotInFlight if ctx does not belong to a key in flight.
func Extend(ctx context.Context) (task context.Context, leave func() (again bool), err error) {
	by, ok := ctx.Value(entryKey{}).(*entry)
	if !ok {
		return nil, nil, ErrNotInFlight
	}
	g := by.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if by.left.Load() { // leave sets left before it takes the lock
		return nil, nil, ErrNotInFlight
	}
	st := &g.slots[by.slot]
	e := &entry{gate: g, key: by.key, slot: by.slot, epoch: by.epoch, task: true}
	e.Context, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	g.begin(st, e)
	var cause error
	end := lose
	switch {
	case st.state == shut || st.epoch != by.epoch:
		cause = ErrLost
	case st.state == lapsed || g.now() >= g.deadline:
		cause = ErrExpired
	case st.state == open, st.state == draining && !st.drain.hard && !st.drain.cut:
		return e, e.leaveTask, nil
	default:
		cause, end = ErrHandover, cancel
	}
	g.end(st, e)
	end([]*entry{e}, cause)
	return e, e.leaveTask, nil
}

// EndTasks ends the tasks of a key with ErrDeleted, because their object no longer exists. It spares tasks for which
// stays returns true; stays may be nil and must not call the gate.
func (g *Gate) EndTasks(key Key, stays func(task context.Context) bool) {
	g.mu.Lock()
	var ended []*entry
	for _, e := range g.tasks[key] {
		if stays == nil || !stays(e) {
			ended = append(ended, e)
		}
	}
	for _, e := range ended {
		g.end(&g.slots[e.slot], e)
	}
	g.mu.Unlock()
	cancel(ended, ErrDeleted)
}

// Tasks returns how many tasks are running, and how many have not returned although their contexts have ended.
func (g *Gate) Tasks() (running, ending int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.slots {
		running += len(g.slots[i].tasks)
	}
	return running, g.ending
}

func (g *Gate) begin(st *slotState, e *entry) {
	if st.tasks == nil {
		st.tasks = map[*entry]struct{}{}
	}
	st.tasks[e] = struct{}{}
	if g.tasks == nil {
		g.tasks = map[Key][]*entry{}
	}
	g.tasks[e.key] = append(g.tasks[e.key], e)
}

// forget undoes begin. It reports whether the task was still running.
func (g *Gate) forget(st *slotState, e *entry) bool {
	if _, goesOn := st.tasks[e]; !goesOn {
		return false
	}
	delete(st.tasks, e)
	others := slices.DeleteFunc(g.tasks[e.key], func(o *entry) bool { return o == e })
	if g.tasks[e.key] = others; len(others) == 0 {
		delete(g.tasks, e.key)
	}
	return true
}

// end counts a task as in flight. The caller cancels it.
func (g *Gate) end(st *slotState, e *entry) {
	g.forget(st, e)
	e.since = g.now() - 1 // a drain that has settled waits only for what was in flight before it began
	g.ending++
	g.put(st, e)
}

// endTasks calls end for all tasks of a slot.
func (g *Gate) endTasks(st *slotState) []*entry {
	ended := slices.Collect(maps.Keys(st.tasks))
	for _, e := range ended {
		g.end(st, e)
	}
	return ended
}

func (e *entry) leaveTask() (again bool) {
	if e.left.Swap(true) {
		return false
	}
	g := e.gate
	g.mu.Lock()
	st := &g.slots[e.slot]
	if g.forget(st, e) {
		g.mu.Unlock()
		e.cancel(context.Canceled)
		return false
	}
	switch st.state {
	case open:
		again = true
	case draining, lapsed:
		st.park(e.key, false)
	case shut, idle: // its next owner reconciles the key
	}
	g.ending--
	g.take(st, e)
	drains := st.drain != nil
	g.mu.Unlock()
	if drains {
		g.Recheck(e.slot)
	}
	return again
}
