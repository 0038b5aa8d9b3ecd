package rota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

const (
	// catchUpPatience bounds how long a drain waits for the watches before it shuts the gate. The slots are open
	// meanwhile. A watch has caught up when its next event comes, or for a kind without traffic a bookmark, which can take
	// longer than this. If it does, a deletion is missed only if the watch of its kind lags by more.
	catchUpPatience = 10 * time.Second
	// deletionPatience bounds how long a drain waits, while no deletion is reconciled, for deletions that it cannot leave
	// to the slot's next owner: a deleted object must not hold a slot back for ever.
	deletionPatience = 10 * time.Second
	// deletionLimit bounds that wait even if deletions are reconciled: one that keeps failing may be among them.
	deletionLimit = 10 * time.Minute
	// reviewPeriod is the time between two looks at drains under way.
	reviewPeriod = 100 * time.Millisecond
	// cutAfter is how long a reconcile must have been in flight before a leaving member cuts it short to let its slot
	// move. Most end by themselves sooner.
	cutAfter = time.Second
	// heldBackAfter is the time until a reconcile that holds its slot back is reported.
	heldBackAfter = 5 * time.Second
	// arrivals is how many objects of slots that were handed over wait in a controller's queue at a time, besides those
	// that changed lately. Nearly all have nothing to do, but the move dropped their timers (RequeueAfter), so they should
	// come soon. In queues without priorities, changes wait behind them.
	arrivals = 16
	// arrivalPeriod is the time between two checks whether workers have taken some.
	arrivalPeriod = 5 * time.Millisecond
)

// doSlots carries out the actions on slots. They take effect at once, except for those that take time: waiting for
// lists and versions, and draining.
func (i *incarnation) doSlots(a member.Action) {
	switch a := a.(type) {
	case member.Hold:
		i.rota.share.Hold(i.rota.hashes(a.Slots))
	case member.Warm:
		i.moves.warming(a.Slots, a.Round)
		i.warm(a)
	case member.Load:
		i.load(a)
	case member.Open:
		i.callOff(a.Slots)
		if i.rota.shadow != nil { // nothing ever opens
			i.opens(a.Slots)
			break
		}
		parked := i.rota.gate.Open(a.Slots, a.Epoch)
		hashes := i.rota.hashes(a.Slots)
		i.opened(hashes.Minus(i.handed), parked, false)
		i.opened(hashes.Intersect(i.handed), nil, true)
		if i.rota.keeper != nil && !hashes.Empty() {
			i.rota.keeper.Open(hashes, a.Epoch)
		}
		i.rota.duties.open(i.ctx, a.Slots.Minus(hashes), a.Epoch)
		i.opens(a.Slots)
	case member.Drain:
		i.moves.draining(i.rota.now(), a.Slots, a.Round)
		i.drain(a)
	case member.Shut:
		i.callOff(a.Slots)
		i.rota.gate.Shut(a.Slots)
		hashes := i.rota.hashes(a.Slots)
		i.rota.shutKeeper(hashes)
		i.silence(hashes)
		i.rota.duties.stop(a.Slots.Minus(hashes), true)
	case member.Release:
		hashes := i.rota.hashes(a.Slots)
		i.rota.shutKeeper(hashes)
		i.rota.share.Release(hashes)
		i.rota.share.ReleaseDuties(a.Slots.Minus(hashes))
		i.rota.duties.forget(a.Slots.Minus(hashes))
		i.forget(hashes)
	default:
		panic(fmt.Sprintf("rota: unknown action %T", a))
	}
}

func (i *incarnation) warm(a member.Warm) {
	hashes := i.rota.hashes(a.Slots)
	if duties := a.Slots.Minus(hashes); !duties.Empty() {
		i.box.put(member.Warmed{Slots: duties, Round: a.Round}) // there is nothing to list
	}
	if hashes.Empty() {
		return
	}
	i.rota.share.Hold(hashes)
	i.calls.Go(func() {
		held := i.retry("warm", hashes, func(set slot.Set) error {
			if err := i.rota.share.Warm(i.ctx, set); err != nil || i.rota.keeper == nil {
				return err
			}
			return i.warmKeeper(set)
		})
		i.box.put(member.Warmed{Slots: held, Round: a.Round})
	})
}

func (i *incarnation) load(a member.Load) {
	a, waits, turns := i.afresh(a)
	hashes := i.rota.hashes(a.Slots)
	if duties := a.Slots.Minus(hashes); !duties.Empty() {
		i.rota.duties.load(a.Duties)
		one := a
		one.Slots = duties
		i.bring(one, turns, func(a member.Load) slot.Set {
			if wait := i.rota.duties.wait(duties); !a.Held && !wait.Empty() {
				i.rota.share.LoadDuties(i.ctx, a.Cause, a.Versions)
			}
			return duties
		})
	}
	if hashes.Empty() {
		return
	}
	if a.Cause == table.CauseHanded || a.Held || waits {
		i.rota.share.Hold(hashes) // while it waits, too: what it lists now may be old by then
	} else {
		i.rota.share.HoldAnew(hashes)
	}
	if a.Cause == table.CauseHanded && !a.Held {
		i.handed = i.handed.Union(hashes)
	} else {
		i.handed = i.handed.Minus(hashes)
	}
	i.inherit(a)
	one := a
	one.Slots = hashes
	i.bring(one, turns, func(a member.Load) slot.Set {
		return i.retry("load", a.Slots, func(set slot.Set) error {
			if err := i.rota.share.Load(i.ctx, set, a.Cause, a.Versions, a.Held); err != nil || i.rota.keeper == nil {
				return err
			}
			return i.loadKeeper(set, a.Cause == table.CauseHanded && !a.Held, a.Gone)
		})
	})
}

// silence keeps handlers from hearing of the slots.
func (i *incarnation) silence(set slot.Set) {
	i.rota.share.Shut(set)
	for _, c := range i.rota.registered() {
		c.silence(set)
	}
}

// opened enqueues the objects of slots whose gate was opened.
func (i *incarnation) opened(set slot.Set, parked []gate.Key, slowly bool) {
	i.rota.share.Unmute(set)
	if set.Empty() && len(parked) == 0 {
		return
	}
	// In a goroutine of its own: this one renews the Lease, and the slots may have hundreds of thousands of objects.
	done := make(chan struct{})
	i.mu.Lock()
	i.gathering[done] = struct{}{}
	i.mu.Unlock()
	i.calls.Go(func() {
		opened := i.rota.share.Gather(set)
		for _, c := range i.rota.registered() {
			rest := c.opened(set, opened[c.kind], parked)
			if !slowly {
				c.enqueue(rest, PriorityOpened)
				continue
			}
			i.calls.Go(func() { c.trickle(i.ctx, rest) })
		}
		i.mu.Lock()
		delete(i.gathering, done)
		i.mu.Unlock()
		close(done)
	})
}

// gathered returns when all objects of slots that were opened before the call are enqueued: a drain has to know of the
// deletions among them (rule R15).
func (i *incarnation) gathered() {
	i.mu.Lock()
	pending := slices.Collect(maps.Keys(i.gathering))
	i.mu.Unlock()
	for _, done := range pending {
		<-done
	}
}

// retry repeats f until it succeeds, for those of the slots that are still held. It returns these; none once the
// incarnation has ended.
func (i *incarnation) retry(what string, set slot.Set, f func(slot.Set) error) slot.Set {
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		err := f(set)
		if err == nil {
			return set
		}
		if i.ctx.Err() != nil {
			return slot.Set{}
		}
		if errors.Is(err, delivery.ErrReleased) {
			if set = set.Intersect(i.rota.share.Held()); set.Empty() {
				return set
			}
			continue
		}
		i.rota.log.Error(err, "Cannot "+what+" slots; trying again", "slots", set.String(), "after", delay.String())
		select {
		case <-i.ctx.Done():
			return slot.Set{}
		case <-time.After(delay):
		}
	}
}

func (i *incarnation) drain(a member.Drain) {
	i.mu.Lock()
	for _, s := range a.Slots.Slots() {
		i.draining[s] = a.Round
	}
	i.mu.Unlock()
	hashes := i.rota.hashes(a.Slots)
	if duties := a.Slots.Minus(hashes); !duties.Empty() {
		i.drainDuties(member.Drain{Slots: duties, Round: a.Round})
	}
	if a.Slots = hashes; hashes.Empty() {
		return
	}
	i.calls.Go(func() {
		i.catchUp(a.Slots)
		i.gathered()
		i.beginDrain(a)
	})
}

// drainDuties ends the contexts of duties, and waits until they have returned.
func (i *incarnation) drainDuties(a member.Drain) {
	i.rota.duties.stop(a.Slots, false)
	i.rota.gate.Drain(a.Slots, func(slot.Slot) bool { return false }, func(s slot.Slot) { i.drained(a.Round, s, nil) })
	i.calls.Go(func() { i.review(a.Slots, &leftover{in: i}) })
	time.AfterFunc(heldBackAfter, func() { i.heldBack(a) })
}

// catchUp waits for the watches: this member must know of deletions that the next owner's list does not show before
// that owner takes over.
func (i *incarnation) catchUp(set slot.Set) {
	ctx, cancel := context.WithTimeout(i.ctx, catchUpPatience)
	defer cancel()
	err := i.rota.share.CatchUp(ctx, set)
	if i.rota.keeper != nil {
		err = errors.Join(err, i.rota.keeper.CatchUp(ctx, set))
	}
	if err != nil && i.ctx.Err() == nil {
		i.rota.log.V(1).Info("Handing over without proof that the watches have caught up", "cause", err.Error())
	}
}

// beginDrain shuts the gate of those slots of a drain that was not called off meanwhile.
func (i *incarnation) beginDrain(a member.Drain) {
	i.mu.Lock()
	defer i.mu.Unlock()
	set := i.stillDraining(a)
	controllers := i.rota.registered()
	begun := i.rota.now()
	pending := func(s slot.Slot) bool {
		return slices.ContainsFunc(controllers, func(c *Controller) bool { return c.deletions(s) })
	}
	i.rota.gate.Drain(set, pending, func(s slot.Slot) { i.drainKeeper(a, s, i.undone(s, a.Room)) })
	for _, c := range controllers {
		c.hurry(set)
	}
	i.calls.Go(func() { i.review(set, &leftover{in: i, begun: begun, room: a.Room, waits: set}) })
	time.AfterFunc(heldBackAfter, func() { i.heldBack(a) })
}

// review watches drains until they have ended. A leaving member that has used half of its time cuts short what has been
// in flight for long; the other half is for the handover. The slot's next owner repeats the reconcile.
func (i *incarnation) review(set slot.Set, left *leftover) {
	tick := time.NewTicker(reviewPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-i.ctx.Done():
			return
		}
		left.look()
		if i.rota.now() >= i.leaveBy(0.5) {
			i.rota.gate.Cut(set, cutAfter)
		}
		parked, more := i.rota.gate.Review(set)
		for _, c := range i.rota.registered() {
			c.resume(parked)
		}
		if !more {
			return
		}
	}
}

// leaveBy is when a leaving member has used a part of its time, on the clock of now; never if it does not leave.
func (i *incarnation) leaveBy(part float64) time.Duration {
	since := i.leaving.Load()
	if since == 0 {
		return math.MaxInt64
	}
	return time.Duration(since + int64(part*float64(i.rota.opts.LeaveTimeout)))
}

func (i *incarnation) stillDraining(a member.Drain) slot.Set {
	var set slot.Set
	for _, s := range a.Slots.Slots() {
		if i.draining[s] == a.Round {
			set.Add(s)
		}
	}
	return set
}

// callOff ends drains that have not begun yet.
func (i *incarnation) callOff(set slot.Set) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range set.Slots() {
		delete(i.draining, s)
	}
}

// heldBack reports the reconciles and deletions that keep slots of a drain from moving on.
func (i *incarnation) heldBack(a member.Drain) {
	i.mu.Lock()
	set := i.stillDraining(a)
	i.mu.Unlock()
	if i.ctx.Err() != nil {
		return
	}
	found := i.heldByDeletions(set)
	tasks := map[string][]gate.Flight{} // by controller: there may be one for each object
	for _, f := range i.rota.stuck(heldBackAfter) {
		if !set.Has(f.Slot) {
			continue
		}
		found = true
		if f.Task {
			tasks[f.Key.Queue] = append(tasks[f.Key.Queue], f)
			continue
		}
		text := fmt.Sprintf(
			"slot %d cannot move on: controller %s has been reconciling %s for %v; other objects and slots are not held back",
			f.Slot, f.Key.Queue, types.NamespacedName{Namespace: f.Key.Namespace, Name: f.Key.Name}, f.For.Round(time.Second))
		if f.Key.Queue == dutyQueue {
			text = fmt.Sprintf("duty %s cannot move on: its context ended %v ago, and it has not returned; other duties and "+
				"slots are not held back", f.Key.Name, f.For.Round(time.Second))
		}
		i.notify(member.Notify{Reason: "SlotHeldBack", Warning: true, Message: text})
	}
	for controller, all := range tasks {
		f := all[0]
		i.notify(member.Notify{Reason: "SlotHeldBack", Warning: true, Message: fmt.Sprintf("slots cannot move on: %d "+
			"functions that controller %s has started by rota.Go have not returned; that of %s (slot %d) was told to %v ago",
			len(all), controller, types.NamespacedName{Namespace: f.Key.Namespace, Name: f.Key.Name}, f.Slot,
			f.For.Round(time.Second))})
	}
	if found {
		time.AfterFunc(10*heldBackAfter, func() { i.heldBack(a) })
	}
}
