package gate

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// ErrNotInFlight is the error of Extend if its context is not that of a key in flight.
var ErrNotInFlight = errors.New("the context is not that of a reconcile that goes on: it is another one, or the " +
	"reconcile has returned")

// Extend is for what goes on when the reconcile of ctx has returned, such as a goroutine that watches something for its
// object. It returns a context with the values of ctx that does not end with ctx. The context ends when the slot drains
// (ErrHandover) or is lost (ErrLost), or when the deadline passes (ErrExpired); if that is so already, it has ended.
// From its end on it counts as in flight until leave is called, so that a drain waits for it.
//
// Call leave when nothing more will be written for the key. Further calls do nothing. again says that the context had
// to end but the slot is open: the caller enqueues the key. If the slot opens later, Open returns the key.
//
// The error is ErrNotInFlight.
func Extend(ctx context.Context) (task context.Context, leave func() (again bool), err error) {
	by, ok := ctx.Value(entryKey{}).(*entry)
	if !ok {
		return nil, nil, ErrNotInFlight
	}
	g := by.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if by.left.Load() { // what leaves says so before it takes the lock
		return nil, nil, ErrNotInFlight
	}
	st := &g.slots[by.slot]
	e := &entry{gate: g, key: by.key, slot: by.slot, epoch: by.epoch}
	e.Context, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if st.tasks == nil {
		st.tasks = map[*entry]struct{}{}
	}
	st.tasks[e] = struct{}{}
	var cause error
	end := lose
	switch {
	case st.state == shut || st.epoch != by.epoch:
		cause = ErrLost
	case st.state == lapsed || g.now() >= g.deadline:
		cause = ErrExpired
	case st.state != open:
		cause, end = ErrHandover, cancel
	default:
		return e, e.leaveTask, nil
	}
	g.endTask(st, e)
	end([]*entry{e}, cause)
	return e, e.leaveTask, nil
}

// endTasks counts the tasks of a slot as in flight, and returns them: the caller cancels them.
func (g *Gate) endTasks(st *slotState) []*entry {
	ended := slices.Collect(maps.Keys(st.tasks))
	for _, e := range ended {
		g.endTask(st, e)
	}
	return ended
}

func (g *Gate) endTask(st *slotState, e *entry) {
	delete(st.tasks, e)
	e.since = g.now() - 1 // a drain that has settled waits only for what was in flight before it began
	g.put(st, e)
}

func (e *entry) leaveTask() (again bool) {
	if e.left.Swap(true) {
		return false
	}
	g := e.gate
	g.mu.Lock()
	st := &g.slots[e.slot]
	if _, goesOn := st.tasks[e]; goesOn {
		delete(st.tasks, e)
		g.mu.Unlock()
		e.cancel(context.Canceled)
		return false
	}
	switch st.state {
	case open:
		again = true
	case draining, lapsed:
		if _, known := st.parked[e.key]; !known {
			st.park(e.key, true) // its reconcile would only find that the slot drains
		}
	case shut, idle: // its next owner reconciles the key
	}
	g.take(st, e)
	drains := st.drain != nil
	g.mu.Unlock()
	if drains {
		g.Recheck(e.slot)
	}
	return again
}
