package gate

import (
	"context"
	"errors"
	"maps"
	"slices"
)

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
