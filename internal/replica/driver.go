package replica

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

const (
	// reviewPeriod is the time between two looks at drains under way.
	reviewPeriod = 100 * time.Millisecond
	// HeldBackAfter is the time until what holds slots of a drain back is reported.
	HeldBackAfter = 5 * time.Second
)

// Member decides what is done. A *member.Member does.
type Member interface {
	Step(now member.Time, e member.Event) []member.Action
	// Wake is when the next member.Tick is due, on the monotonic clock.
	Wake() time.Duration
}

// Observer is told of a member's events before it is stepped with them, but for member.Lapsed, and of its actions after
// they were begun. It must not block.
type Observer interface {
	Event(e member.Event)
	Action(a member.Action)
	// Seen tells of a version of the table that is newer than the one before.
	Seen(s member.Snapshot)
}

// driver carries out what a member decides. It has no goroutines, and time only from its clock: what takes time is done
// by what it is handed, which calls it back, in any goroutine. step, lapse, leave, answered and do are called by one
// goroutine at a time.
type driver struct {
	id     string
	config member.Config
	member Member
	clock  Clock
	state  *State
	parts  []Part
	turns  turns
	send   Requests
	watch  Observer
	// post is given events for the member, drained the slots in which nothing is in flight any more, of which an event
	// is made.
	post    func(member.Event)
	drained func(round uint64, s slot.Slot, gone []table.Gone)
	// after calls do after a while, unless the incarnation ends before.
	after func(wait time.Duration, do func())
	// tell tells people.
	tell func(member.Notify)
	// leaveTimeout is how long a member may take to leave.
	leaveTimeout time.Duration

	// stop is how the incarnation ends; nil: it goes on.
	stop *member.Stop
	// leaving is when it began to leave, on the monotonic clock; 0: it does not.
	leaving atomic.Int64
	// leaseUID is the UID of this incarnation's Lease, once there is one.
	leaseUID atomic.Pointer[string]

	mu sync.Mutex
	// draining are the rounds of drains that were not called off.
	draining map[slot.Slot]uint64
}

// step returns what the member wants done after an event. Each action is carried out with do, in order, before the
// next step.
func (d *driver) step(e member.Event) []member.Action {
	if d.stop != nil {
		return nil
	}
	d.observe(e)
	return d.member.Step(d.clock.Now(), e)
}

// lapse is step for a gate that has lapsed.
func (d *driver) lapse() []member.Action { return d.member.Step(d.clock.Now(), member.Lapsed{}) }

// observe takes from an event what others than the member have to know.
func (d *driver) observe(e member.Event) {
	var s member.Snapshot
	watched := false
	switch e := e.(type) {
	case member.TableSeen:
		s, watched = e.Snapshot, !e.Consistent
	case member.Swapped:
		d.turns.swapped(e)
		s = e.Snapshot
	}
	d.watch.Event(e)
	gone := watched && s.UID == "" && s.Err == nil
	if watched {
		d.state.setGone(gone)
	}
	switch {
	case gone:
	case d.reads(s.Table) && d.state.See(s):
		d.watch.Seen(s)
	default:
		return
	}
	d.turns.seen(s.Table, s.UID)
}

// reads says that a table is one for members with the options of this one. The member goes by no other (rule R4).
func (d *driver) reads(t *table.Table) bool {
	return t != nil && t.Slots == d.config.Slots && t.Key == d.config.Key
}

// answered returns the event to step for one that has come; false: none. If somebody else may have worked since slots
// were loaded, they are loaded again, and no owner can be told how new its informers must be.
func (d *driver) answered(e member.Event) (member.Event, bool) {
	switch e := e.(type) {
	case member.Drained:
		e.Stale = e.Stale || !d.turns.knows(e.Slots)
		return e, true
	case loaded:
		if !d.turns.knows(e.Slots) {
			e.again()
			return nil, false
		}
		return e.Loaded, true
	}
	return e, true
}

// do carries out an action. It takes effect at once, except for what takes time.
func (d *driver) do(a member.Action) {
	switch a := a.(type) {
	case member.CreateLease:
		d.send.CreateLease(a.Lease, a.Timeout, d.renewed())
	case member.RenewLease:
		d.send.RenewLease(a.Lease, a.Timeout, d.renewed())
	case member.ReadTable:
		d.read()
	case member.CreateTable:
		d.send.CreateTable(a.Table, a.Timeout, d.swapped(a.Serial))
	case member.Swap:
		d.turns.swapping(a)
		d.send.SwapTable(a, d.swapped(a.Serial))
	case member.WatchLeases:
		d.send.WatchLeases(a)
	case member.DeleteLease:
		d.send.DeleteLease(a, func(o member.Outcome) { d.post(member.LeaseDeleted{ID: a.ID, Outcome: o}) })
	case member.Deadline:
		d.turns.deadline(a.At)
	case member.Notify:
		d.notify(a)
	case member.Stop:
		d.stop = &a
	case member.Hold:
		d.each(a.Slots, Part.Hold)
	case member.Warm:
		d.each(a.Slots, func(p Part, set slot.Set) { d.warm(p, set, a.Round) })
	case member.Load:
		d.load(a)
	case member.Open:
		d.callOff(a.Slots)
		d.each(a.Slots, func(p Part, set slot.Set) { p.Open(set, a.Epoch) })
	case member.Drain:
		d.drain(a)
	case member.Shut:
		d.callOff(a.Slots)
		d.each(a.Slots, Part.Shut)
	case member.Release:
		d.each(a.Slots, Part.Release)
	default:
		panic(fmt.Sprintf("rota: unknown action %T", a))
	}
	d.watch.Action(a)
}

// each calls do for every part that has some of the slots, with these.
func (d *driver) each(set slot.Set, do func(p Part, its slot.Set)) {
	for _, p := range d.parts {
		if its := set.Intersect(p.Slots); !its.Empty() {
			do(p, its)
		}
	}
}

// renewed returns what takes the answer to a renewal that is sent now.
func (d *driver) renewed() func(member.Lease, member.Outcome) {
	start := d.clock.Late()
	return func(l member.Lease, o member.Outcome) {
		if o == member.OutcomeDone {
			d.leaseUID.Store(&l.UID)
		}
		d.post(member.Renewed{Start: start, Outcome: o, Lease: l})
	}
}

func (d *driver) read() {
	begun := d.clock.Mono()
	d.send.ReadTable(func(s member.Snapshot, ok bool) {
		if ok {
			d.post(member.TableSeen{Snapshot: s, Consistent: true, Begun: begun})
		} else {
			d.post(member.ReadFailed{})
		}
	})
}

func (d *driver) swapped(serial uint64) func(member.Snapshot, member.Outcome) {
	return func(s member.Snapshot, o member.Outcome) {
		d.post(member.Swapped{Serial: serial, Outcome: o, Snapshot: s})
	}
}

func (d *driver) notify(n member.Notify) {
	if why := d.turns.waiting(); why != "" && n.Reason == "Lapsed" {
		n.Message = why
	}
	switch n.Reason {
	case "TableInvalid":
		d.state.setInvalid(n.Message)
	case "TableValid":
		d.state.setInvalid("")
	}
	d.tell(n)
}

func (d *driver) warm(p Part, set slot.Set, round uint64) {
	p.Hold(set)
	p.Warm(set, func(held slot.Set) { d.post(member.Warmed{Slots: held, Round: round}) })
}

func (d *driver) load(a member.Load) {
	a, later, turn := d.turns.afresh(a)
	d.each(a.Slots, func(p Part, set slot.Set) {
		a := a
		a.Slots = set
		p.Expect(a, later)
		d.bring(p, a, turn)
	})
}

// loaded is a member.Loaded with what the driver has to know before it steps the member with it.
type loaded struct {
	member.Loaded
	// again loads them once more: somebody else may have worked since.
	again func()
}

// bring loads slots once this member may work. If somebody else may have worked since that turn, it is done as after an
// expel, and again if that happens meanwhile.
func (d *driver) bring(p Part, a member.Load, turn uint64) {
	d.turns.await(func(now uint64) {
		if now != turn {
			a.Held, a.Cause = false, table.CauseExpelled
		}
		p.Load(a, func(held slot.Set) {
			a := a
			a.Slots = held
			if !d.turns.complete(held, now) {
				d.bring(p, a, now)
				return
			}
			d.post(loaded{member.Loaded{Slots: held, Round: a.Round}, func() { d.bring(p, a, now) }})
		})
	})
}

func (d *driver) drain(a member.Drain) {
	d.mu.Lock()
	for _, s := range a.Slots.Slots() {
		d.draining[s] = a.Round
	}
	d.mu.Unlock()
	d.each(a.Slots, func(p Part, set slot.Set) {
		p.CatchUp(set, func() { d.beginDrain(p, member.Drain{Slots: set, Round: a.Round, Room: a.Room}) })
	})
}

// beginDrain drains those slots of a drain that was not called off meanwhile.
func (d *driver) beginDrain(p Part, a member.Drain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := d.stillDraining(a)
	look := p.Drain(Drain{
		Slots: set, Room: a.Room, LeaveBy: d.leaveBy,
		Idle: func(s slot.Slot, gone []table.Gone) { d.drained(a.Round, s, gone) },
	})
	d.review(look)
	d.after(HeldBackAfter, func() { d.heldBack(p, a) })
}

// review looks at a drain until it has ended.
func (d *driver) review(look func() (more bool)) {
	d.after(reviewPeriod, func() {
		if look() {
			d.review(look)
		}
	})
}

// leave has the member leave.
func (d *driver) leave() []member.Action {
	d.leaving.Store(int64(d.clock.Mono()))
	return d.step(member.Leave{})
}

// leaveBy is when a leaving member has used a part of its time, on the monotonic clock; never if it does not leave.
func (d *driver) leaveBy(part float64) time.Duration {
	since := d.leaving.Load()
	if since == 0 {
		return math.MaxInt64
	}
	return time.Duration(since + int64(part*float64(d.leaveTimeout)))
}

// stillDraining needs the lock.
func (d *driver) stillDraining(a member.Drain) slot.Set {
	var set slot.Set
	for _, s := range a.Slots.Slots() {
		if d.draining[s] == a.Round {
			set.Add(s)
		}
	}
	return set
}

// callOff ends drains that have not begun yet.
func (d *driver) callOff(set slot.Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range set.Slots() {
		delete(d.draining, s)
	}
}

// heldBack reports what keeps slots of a drain from moving on.
func (d *driver) heldBack(p Part, a member.Drain) {
	d.mu.Lock()
	set := d.stillDraining(a)
	d.mu.Unlock()
	held := p.HeldBack(set)
	for _, text := range held {
		d.notify(member.Notify{Reason: "SlotHeldBack", Warning: true, Message: text})
	}
	if len(held) > 0 {
		d.after(10*HeldBackAfter, func() { d.heldBack(p, a) })
	}
}
