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
	// meanwhile. A watch shows that it has caught up by its next event, or by a bookmark where the kind has no traffic,
	// which can take longer than this: then a deletion is missed only if the watch of its kind lags by more.
	catchUpPatience = 10 * time.Second
	// deletionPatience bounds how long a drain waits, while none is dealt with, for deletions that it cannot leave to the
	// slot's next owner: a slot must not be held back for ever by an object that is gone.
	deletionPatience = 10 * time.Second
	// deletionLimit bounds that wait however many are dealt with: one that keeps failing may be among them.
	deletionLimit = 10 * time.Minute
	// reviewPeriod is the time between two looks at drains under way.
	reviewPeriod = 100 * time.Millisecond
	// cutAfter is what has to be in flight for this long when a leaver cuts short what keeps its slots from moving:
	// what ends by itself soon need not be.
	cutAfter = time.Second
	// heldBackAfter is when people are told that a reconcile holds its slot back.
	heldBackAfter = 5 * time.Second
	// arrivals is how many objects of slots that were handed over wait in a controller's queue at a time, beyond those
	// that changed lately. Nearly all of them have nothing to do, but their timers (RequeueAfter) were dropped by the
	// move: they should come soon, and in queues without priorities changes have to wait behind them.
	arrivals = 16
	// arrivalPeriod is the time between two looks whether workers have taken some.
	arrivalPeriod = 5 * time.Millisecond
)

// doSlots carries out the actions on slots. All of it takes effect at once but for what takes time: waiting for lists
// and versions, and draining.
func (i *incarnation) doSlots(a member.Action) {
	switch a := a.(type) {
	case member.Hold:
		i.rota.share.Hold(a.Slots)
	case member.Warm:
		i.rota.share.Hold(a.Slots)
		i.calls.Go(func() {
			held := i.settle("warm", a.Slots, func(set slot.Set) error { return i.rota.share.Warm(i.ctx, set) })
			i.box.put(member.Warmed{Slots: held, Round: a.Round})
		})
	case member.Load:
		if a.Cause == table.CauseHanded || a.Held {
			i.rota.share.Hold(a.Slots)
		} else {
			i.rota.share.HoldAnew(a.Slots)
		}
		if a.Cause == table.CauseHanded && !a.Held {
			i.handed = i.handed.Union(a.Slots)
		} else {
			i.handed = i.handed.Minus(a.Slots)
		}
		i.inherit(a)
		i.calls.Go(func() {
			held := i.settle("load", a.Slots, func(set slot.Set) error {
				return i.rota.share.Load(i.ctx, set, a.Cause, a.Versions, a.Held)
			})
			i.box.put(member.Loaded{Slots: held, Round: a.Round})
		})
	case member.Open:
		i.callOff(a.Slots)
		parked := i.rota.gate.Open(a.Slots, a.Epoch)
		i.opened(a.Slots.Minus(i.handed), parked, false)
		i.opened(a.Slots.Intersect(i.handed), nil, true)
	case member.Drain:
		i.drain(a)
	case member.Shut:
		i.callOff(a.Slots)
		i.rota.gate.Shut(a.Slots)
		i.silence(a.Slots)
	case member.Release:
		i.rota.share.Release(a.Slots)
		i.forget(a.Slots)
	default:
		panic(fmt.Sprintf("rota: unknown action %T", a))
	}
}

// silence keeps handlers from hearing of the slots.
func (i *incarnation) silence(set slot.Set) {
	i.rota.share.Shut(set)
	for _, c := range i.rota.registered() {
		c.silence(set)
	}
}

// opened enqueues what slots brought whose gate was opened.
func (i *incarnation) opened(set slot.Set, parked []gate.Key, slowly bool) {
	i.rota.share.Unmute(set)
	if set.Empty() && len(parked) == 0 {
		return
	}
	// This goroutine renews the Lease; the slots may have hundreds of thousands of objects.
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

// gathered returns when everything is enqueued that slots brought which were opened before the call: a drain has to know of the deletions
// among that (rule R15).
func (i *incarnation) gathered() {
	i.mu.Lock()
	pending := slices.Collect(maps.Keys(i.gathering))
	i.mu.Unlock()
	for _, done := range pending {
		<-done
	}
}

// settle repeats what ends with an error until it succeeds, for those of the slots that are still held. It returns
// these; none once the incarnation has ended.
func (i *incarnation) settle(what string, set slot.Set, f func(slot.Set) error) slot.Set {
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
	i.calls.Go(func() {
		i.catchUp(a.Slots)
		i.gathered()
		i.beginDrain(a)
	})
}

// catchUp waits for the watches: deletions that the next owner's list did not show any more must be known here
// before it takes over.
func (i *incarnation) catchUp(set slot.Set) {
	ctx, cancel := context.WithTimeout(i.ctx, catchUpPatience)
	defer cancel()
	if err := i.rota.share.CatchUp(ctx, set); err != nil && i.ctx.Err() == nil {
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
	i.rota.gate.Drain(set, pending, func(s slot.Slot) { i.drained(a.Round, s, i.undone(s, a.Room)) })
	for _, c := range controllers {
		c.hurry(set)
	}
	i.calls.Go(func() { i.review(set, &leftover{in: i, begun: begun, room: a.Room, waits: set}) })
	time.AfterFunc(heldBackAfter, func() { i.heldBack(a) })
}

// review looks after drains until they have ended. A leaver that has used half of its time cuts short what has been in
// flight for long: the other half is for the handover. Whoever gets the slot repeats it.
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

// leaveBy is when a leaver has used a part of its time, as now tells; never for others.
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

// heldBack tells people which reconciles keep slots of a drain from moving on.
func (i *incarnation) heldBack(a member.Drain) {
	i.mu.Lock()
	set := i.stillDraining(a)
	i.mu.Unlock()
	if i.ctx.Err() != nil {
		return
	}
	found := i.heldByDeletions(set)
	for _, f := range i.rota.gate.Stuck(heldBackAfter) {
		if !set.Has(f.Slot) {
			continue
		}
		found = true
		i.notify(member.Notify{Reason: "SlotHeldBack", Warning: true, Message: fmt.Sprintf(
			"slot %d cannot move on: controller %s has been reconciling %s for %v; other objects and slots are not held back",
			f.Slot, f.Key.Queue, types.NamespacedName{Namespace: f.Key.Namespace, Name: f.Key.Name}, f.For.Round(time.Second))})
	}
	if found {
		time.AfterFunc(10*heldBackAfter, func() { i.heldBack(a) })
	}
}
