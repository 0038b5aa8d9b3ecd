package rota

import (
	"context"
	"fmt"
	"math"
	"time"

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

// drain is a drain of some of a holder's slots.
type drain struct {
	slots slot.Set
	// room is for how many bytes of deletions there is room in the table, as counted by table.GoneSize.
	room int
	// idle is called once for each slot in which nothing is in flight any more, with the deletions left to its next owner.
	idle func(s slot.Slot, gone []table.Gone)
	// leaveBy is when a leaving member has used a part of its time, on the clock of now; never if it does not leave.
	leaveBy func(part float64) time.Duration
}

// doSlots carries out the actions on slots. They take effect at once, except for those that take time: waiting for
// lists and versions, and draining.
func (i *incarnation) doSlots(a member.Action) {
	switch a := a.(type) {
	case member.Hold:
		i.each(a.Slots, part.hold)
	case member.Warm:
		i.moves.Warming(a.Slots, a.Round)
		i.each(a.Slots, func(p part, set slot.Set) { i.warm(p, set, a.Round) })
	case member.Load:
		i.load(a)
	case member.Open:
		i.callOff(a.Slots)
		i.each(a.Slots, func(p part, set slot.Set) {
			if rest := p.open(i.ctx, set, a.Epoch); rest != nil {
				i.calls.Go(rest)
			}
		})
		i.opens(a.Slots)
	case member.Drain:
		i.moves.Draining(i.rota.now(), a.Slots, a.Round)
		i.drain(a)
	case member.Shut:
		i.callOff(a.Slots)
		i.each(a.Slots, part.shut)
	case member.Release:
		i.each(a.Slots, part.release)
	default:
		panic(fmt.Sprintf("rota: unknown action %T", a))
	}
}

func (i *incarnation) warm(p part, set slot.Set, round uint64) {
	p.hold(set)
	i.calls.Go(func() {
		held := i.retry("warm", set, func(set slot.Set) (slot.Set, error) { return p.warm(i.ctx, set) })
		i.box.put(member.Warmed{Slots: held, Round: round})
	})
}

func (i *incarnation) load(a member.Load) {
	a, waits, turns := i.afresh(a)
	i.each(a.Slots, func(p part, set slot.Set) {
		a := a
		a.Slots = set
		p.expect(a, waits)
		i.bring(a, turns, func(a member.Load) slot.Set {
			return i.retry("load", a.Slots, func(set slot.Set) (slot.Set, error) {
				a.Slots = set
				return p.load(i.ctx, a)
			})
		})
	})
}

// retry repeats do until it succeeds, with the slots that it returns. It returns these; none once the incarnation has
// ended.
func (i *incarnation) retry(what string, set slot.Set, do func(slot.Set) (slot.Set, error)) slot.Set {
	for delay := 50 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		held, err := do(set)
		if err == nil {
			return held
		}
		if i.ctx.Err() != nil {
			return slot.Set{}
		}
		set = held
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
	i.each(a.Slots, func(p part, set slot.Set) {
		i.calls.Go(func() {
			i.catchUp(p, set)
			i.beginDrain(p, member.Drain{Slots: set, Round: a.Round, Room: a.Room})
		})
	})
}

// catchUp waits until the holder has caught up, but not for ever.
func (i *incarnation) catchUp(p part, set slot.Set) {
	ctx, cancel := context.WithTimeout(i.ctx, catchUpPatience)
	defer cancel()
	if err := p.catchUp(ctx, set); err != nil && i.ctx.Err() == nil {
		i.rota.log.V(1).Info("Handing over without proof that the watches have caught up", "cause", err.Error())
	}
}

// beginDrain drains those slots of a drain that was not called off meanwhile.
func (i *incarnation) beginDrain(p part, a member.Drain) {
	i.mu.Lock()
	defer i.mu.Unlock()
	set := i.stillDraining(a)
	look := p.drain(drain{
		slots: set, room: a.Room, leaveBy: i.leaveBy,
		idle: func(s slot.Slot, gone []table.Gone) { i.drained(a.Round, s, gone) },
	})
	i.calls.Go(func() { i.review(look) })
	time.AfterFunc(heldBackAfter, func() { i.heldBack(p, a) })
}

// review looks at a drain until it has ended.
func (i *incarnation) review(look func() (more bool)) {
	tick := time.NewTicker(reviewPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-i.ctx.Done():
			return
		}
		if !look() {
			return
		}
	}
}

// review has the gate look at the drain. A leaving member that has used half of its time cuts short what has been in
// flight for long; the other half is for the handover. The slot's next owner repeats the reconcile.
func (d drain) review(r *Rota) (parked []gate.Key, more bool) {
	if r.now() >= d.leaveBy(0.5) {
		r.gate.Cut(d.slots, cutAfter)
	}
	return r.gate.Review(d.slots)
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

// heldBack reports what keeps slots of a drain from moving on.
func (i *incarnation) heldBack(p part, a member.Drain) {
	i.mu.Lock()
	set := i.stillDraining(a)
	i.mu.Unlock()
	if i.ctx.Err() != nil {
		return
	}
	held := p.heldBack(set)
	for _, text := range held {
		i.notify(member.Notify{Reason: "SlotHeldBack", Warning: true, Message: text})
	}
	if len(held) > 0 {
		time.AfterFunc(10*heldBackAfter, func() { i.heldBack(p, a) })
	}
}
