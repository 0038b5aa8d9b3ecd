package replica

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

const (
	// reviewPeriod is the time between two reviews of drains under way.
	reviewPeriod = 100 * time.Millisecond
	// HeldBackAfter is how long a drain takes before the driver reports what holds it back.
	HeldBackAfter = 5 * time.Second
)

// Member makes the decisions. A *member.Member implements it.
type Member interface {
	Step(now member.Time, e member.Event) []member.Action
	// Wake returns when the next member.Tick is due, on the monotonic clock.
	Wake() time.Duration
}

// Observer sees a member's events before the member is stepped with them, and its actions after they were begun. It
// must not block.
type Observer interface {
	Event(e member.Event)
	Action(a member.Action)
	// Seen reports a newer version of the table. It comes before the Event that contains the version.
	Seen(s member.Snapshot)
}

// LongWrites counts the writes that may take longer than WriteTimeout (rule R2). A *gate.LongWrites implements it.
type LongWrites interface {
	Allow()
	// Withdraw calls ended once no long write is under way, unless Allow is called first.
	Withdraw(ended func())
}

// DriverEnv is the environment of a Driver. Its functions must not block.
type DriverEnv struct {
	Config member.Config
	Member Member
	Clock  Clock
	State  *State
	// Parts are the holders with their slots. Each slot belongs to one holder.
	Parts []Part
	Turns Turns
	Send  Requests
	Watch Observer
	// Expire makes the gate check its deadline, and reports whether the gate has just lapsed.
	Expire func() bool
	// Long controls the writes that may take longer than WriteTimeout.
	Long LongWrites
	// Versions returns the versions that the slots' next owner has to reach (rule R8). They are known once Settle has
	// called then, which it does in any goroutine, possibly before it returns.
	Versions func(set slot.Set) table.Versions
	Settle   func(s slot.Slot, then func())
	// After calls do after a delay, unless the incarnation ends first.
	After func(wait time.Duration, do func())
	// Emit logs a notice and creates an event for it.
	Emit func(member.Notify)
	// LeaveTimeout is how long a member may take to leave.
	LeaveTimeout time.Duration
}

// Driver carries out a member's decisions. It has no goroutines and gets the time only from its clock. Functions of its
// environment do what takes time and call back, in any goroutine. Post and Leave may be called concurrently. Next,
// Ready, Pending, Stopped, Tick and Look must be called by one goroutine at a time.
type Driver struct {
	env DriverEnv
	box *mailbox
	// events were taken from the mailbox and not stepped yet. todo holds the remaining actions of the last step, and
	// lapsed is true if that step's event was Lapsed.
	events []member.Event
	todo   []member.Action
	lapsed bool
	// stop is how the incarnation ended, nil while it goes on.
	stop *member.Stop
	// leaving is when the member began to leave, on the monotonic clock, 0 if it is not leaving.
	leaving atomic.Int64
	// leaseUID is the UID of this incarnation's Lease, nil before there is one.
	leaseUID atomic.Pointer[string]

	mu sync.Mutex
	// draining holds the rounds of drains that were not called off.
	draining map[slot.Slot]uint64
}

// NewDriver returns the driver of an incarnation, which starts with the first Tick.
func NewDriver(env DriverEnv) *Driver {
	return &Driver{env: env, box: newMailbox(), draining: map[slot.Slot]uint64{}}
}

// Post queues an event for the member.
func (d *Driver) Post(e member.Event) { d.box.put(e) }

// Next does one thing: it carries out an action, or steps the member with an event. All actions of an event are carried
// out before the next event. more is true while something is left of the current batch; events that arrive meanwhile go
// into the next batch.
func (d *Driver) Next() (more bool) {
	switch {
	case len(d.todo) > 0:
		a := d.todo[0]
		d.todo = d.todo[1:]
		d.do(a)
		if len(d.todo) == 0 && !d.lapsed {
			d.Look()
		}
	case !d.Ready():
		return false
	default:
		if len(d.events) == 0 {
			d.events = d.box.take(d.env.Versions)
		}
		e := d.events[0]
		d.events = d.events[1:]
		d.step(e)
	}
	return len(d.todo) > 0 || len(d.events) > 0 && d.stop == nil
}

// Ready reports whether Next has something to do.
func (d *Driver) Ready() bool {
	return len(d.todo) > 0 || d.stop == nil && (len(d.events) > 0 || !d.box.empty())
}

// Pending returns the action that Next would carry out, or nil.
func (d *Driver) Pending() member.Action {
	if len(d.todo) == 0 {
		return nil
	}
	return d.todo[0]
}

// Stopped returns how the incarnation ended, or nil while it goes on.
func (d *Driver) Stopped() *member.Stop { return d.stop }

// Tick posts a member.Tick if one is due, and reports whether it was.
func (d *Driver) Tick() (due bool) {
	if due = d.env.Clock.Mono() >= d.env.Member.Wake(); due {
		d.Post(member.Tick{})
	}
	return due
}

// Look makes the gate check its deadline, unless actions are waiting; it is then done after these. The deadline may
// pass between an event and its actions, or while the machine sleeps, and the member does not notice that the gate has
// lapsed (rule R13). Call Look regularly, even if no events arrive.
func (d *Driver) Look() {
	if len(d.todo) == 0 && d.stop == nil && d.env.Expire() {
		d.deliver(member.Lapsed{})
	}
}

// step steps the member with an event from the mailbox.
func (d *Driver) step(e member.Event) {
	if e, ok := d.answered(e); ok {
		d.observe(e)
		d.deliver(e)
	}
}

// answered returns the event to step with in place of e, or false for none. If others may have worked since slots were
// loaded, it loads them again. If slots were drained after that, it marks the versions for the next owner as stale.
func (d *Driver) answered(e member.Event) (member.Event, bool) {
	switch e := e.(type) {
	case member.Drained:
		e.Stale = e.Stale || !d.env.Turns.UpToDate(e.Slots)
		return e, true
	case loaded:
		if !d.env.Turns.UpToDate(e.Slots) {
			e.again()
			return nil, false
		}
		return e.Loaded, true
	}
	return e, true
}

// deliver steps the member.
func (d *Driver) deliver(e member.Event) {
	d.env.Watch.Event(e)
	_, d.lapsed = e.(member.Lapsed)
	if d.todo = d.env.Member.Step(d.env.Clock.Now(), e); len(d.todo) == 0 && !d.lapsed {
		d.Look()
	}
}

// observe passes on the parts of an event that concern State, the observer and the turns.
func (d *Driver) observe(e member.Event) {
	var s member.Snapshot
	watched := false
	switch e := e.(type) {
	case member.TableSeen:
		s, watched = e.Snapshot, !e.Consistent
	case member.Swapped:
		d.env.Turns.Swapped(e)
		s = e.Snapshot
	}
	gone := watched && s.UID == "" && s.Err == nil
	if watched {
		d.env.State.setGone(gone)
	}
	switch {
	case gone:
	case d.reads(s.Table) && d.env.State.See(s):
		d.env.Watch.Seen(s)
	default:
		return
	}
	d.env.Turns.Seen(s.Table, s.UID)
}

// reads reports whether a table has the slots and the key of this member's options. The member ignores others (rule
// R4).
func (d *Driver) reads(t *table.Table) bool {
	return t != nil && t.Slots == d.env.Config.Slots && t.Key == d.env.Config.Key
}

// do carries out an action. It takes effect at once, except for operations that take time.
func (d *Driver) do(a member.Action) {
	switch a := a.(type) {
	case member.CreateLease:
		d.env.Send.CreateLease(a.Lease, a.Timeout, d.renewed())
	case member.RenewLease:
		d.env.Send.RenewLease(a.Lease, a.Timeout, d.renewed())
	case member.ReadTable:
		d.read()
	case member.CreateTable:
		d.env.Send.CreateTable(a, d.swapped(a.Serial))
	case member.Swap:
		d.env.Turns.Swapping(a)
		d.env.Send.SwapTable(a, d.swapped(a.Serial))
	case member.ReadLoads:
		d.env.Send.ReadLoads(func(reports []planner.LoadReport) {
			d.Post(member.LoadsSeen{Serial: a.Serial, Reports: reports})
		})
	case member.WatchLeases:
		d.env.Send.WatchLeases(a)
	case member.DeleteLease:
		d.env.Send.DeleteLease(a, func(o member.Outcome) { d.Post(member.LeaseDeleted{ID: a.ID, Outcome: o}) })
	case member.Deadline:
		d.env.Turns.Deadline(a.At)
	case member.AllowLong:
		if a.Allowed {
			d.env.Long.Allow()
		} else {
			d.env.Long.Withdraw(func() { d.Post(member.ShortWrites{Round: a.Round}) })
		}
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
	d.env.Watch.Action(a)
}

// shut shuts all slots after the incarnation has ended.
func (d *Driver) shut() {
	d.env.Long.Withdraw(func() {})
	for _, p := range d.env.Parts {
		d.callOff(p.Slots)
		p.Shut(p.Slots)
	}
}

// release drops the contents of all slots. Call it after shut, when there are no more callbacks.
func (d *Driver) release() {
	for _, p := range d.env.Parts {
		p.Release(p.Slots)
	}
}

// each calls do for every part that has some of the slots, with these slots.
func (d *Driver) each(set slot.Set, do func(p Part, its slot.Set)) {
	for _, p := range d.env.Parts {
		if its := set.Intersect(p.Slots); !its.Empty() {
			do(p, its)
		}
	}
}

// renewed returns the callback for a renewal that is sent now.
func (d *Driver) renewed() func(member.Lease, member.Outcome) {
	start := d.env.Clock.Late()
	return func(l member.Lease, o member.Outcome) {
		if o == member.OutcomeDone {
			d.leaseUID.Store(&l.UID)
		}
		d.Post(member.Renewed{Start: start, Outcome: o, Lease: l})
	}
}

func (d *Driver) read() {
	begun := d.env.Clock.Mono()
	d.env.Send.ReadTable(func(s member.Snapshot, ok bool) {
		if ok {
			d.Post(member.TableSeen{Snapshot: s, Consistent: true, Begun: begun})
		} else {
			d.Post(member.ReadFailed{})
		}
	})
}

func (d *Driver) swapped(serial uint64) func(member.Snapshot, member.Outcome) {
	return func(s member.Snapshot, o member.Outcome) {
		d.Post(member.Swapped{Serial: serial, Outcome: o, Snapshot: s})
	}
}

// notify emits a notice. It may be called concurrently.
func (d *Driver) notify(n member.Notify) {
	switch n.Reason {
	case "Lapsed": // the member does not know about leader election's Lease
		_, own, _ := d.env.State.Deadline()
		renews := own > d.env.Clock.Late()+2*d.env.Config.RetryPeriod // the member's own Lease
		if why := d.env.Turns.Waiting(); why != "" && renews {
			n.Message = why
		}
	case "TableInvalid":
		d.env.State.setInvalid(n.Message)
	case "TableValid":
		d.env.State.setInvalid("")
	}
	d.env.Emit(n)
}

func (d *Driver) warm(p Part, set slot.Set, round uint64) {
	p.Hold(set)
	p.Warm(set, func(held slot.Set) { d.Post(member.Warmed{Slots: held, Round: round}) })
}

func (d *Driver) load(a member.Load) {
	a, later, turn := d.env.Turns.PrepareLoad(a)
	d.each(a.Slots, func(p Part, set slot.Set) {
		a := a
		a.Slots = set
		p.Expect(a, later)
		d.bring(p, a, turn)
	})
}

// loaded is a member.Loaded that the driver checks before it steps the member with it.
type loaded struct {
	member.Loaded
	// again repeats the load, for when others may have worked since.
	again func()
}

// bring loads slots once this member may work. If others may have worked since turn, it loads as after an expel, and it
// repeats that if they may have worked meanwhile.
func (d *Driver) bring(p Part, a member.Load, turn uint64) {
	d.env.Turns.Await(func(now uint64) {
		if now != turn {
			a.Held, a.Cause = false, table.CauseExpelled
		}
		p.Load(a, func(held slot.Set) {
			a := a
			a.Slots = held
			if !d.env.Turns.Complete(held, now) {
				d.bring(p, a, now)
				return
			}
			d.Post(loaded{member.Loaded{Slots: held, Round: a.Round}, func() { d.bring(p, a, now) }})
		})
	})
}

func (d *Driver) drain(a member.Drain) {
	d.mu.Lock()
	for _, s := range a.Slots.Slots() {
		d.draining[s] = a.Round
	}
	d.mu.Unlock()
	d.each(a.Slots, func(p Part, set slot.Set) {
		p.CatchUp(set, func() { d.beginDrain(p, member.Drain{Slots: set, Round: a.Round, Room: a.Room}) })
	})
}

// beginDrain drains the slots whose drain was not called off meanwhile.
func (d *Driver) beginDrain(p Part, a member.Drain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := d.stillDraining(a)
	look := p.Drain(Drain{
		Slots: set, Room: a.Room, LeaveBy: d.leaveBy, Cut: d.cut,
		Idle: func(s slot.Slot, gone []table.Gone) {
			d.env.Settle(s, func() { d.box.idle(a.Round, s, gone) }) // the member ignores drains that were called off
		},
	})
	d.review(look)
	d.env.After(HeldBackAfter, func() { d.heldBack(p, a) })
}

// review calls look regularly until it returns false.
func (d *Driver) review(look func() (more bool)) {
	d.env.After(reviewPeriod, func() {
		if look() {
			d.review(look)
		}
	})
}

// Leave makes the member leave.
func (d *Driver) Leave() {
	d.leaving.Store(int64(d.env.Clock.Mono()))
	d.Post(member.Leave{})
}

// lease returns the UID of the incarnation's Lease, empty before there is one. It may be called concurrently.
func (d *Driver) lease() string {
	if uid := d.leaseUID.Load(); uid != nil {
		return *uid
	}
	return ""
}

// handoverTime is how much of LeaveTimeout a leaving member reserves for the handover, at most half of it. Reconciles
// that run longer are cut short then. The reserve covers the moment until they return, writes that take a few seconds,
// a change of the table and the deletion of the Lease.
const handoverTime = 6 * time.Second

// leaveBy returns the time, on the monotonic clock, from which only the given fraction of the handover time is left. It
// is math.MaxInt64 while the member is not leaving.
func (d *Driver) leaveBy(part float64) time.Duration {
	since := d.leaving.Load()
	if since == 0 {
		return math.MaxInt64
	}
	keeps := min(handoverTime, d.env.LeaveTimeout/2)
	return time.Duration(since) + d.env.LeaveTimeout - time.Duration(part*float64(keeps))
}

// cut reports reconciles that were cut short.
func (d *Driver) cut(keys []gate.Key) {
	const named = 5
	var names []string
	for _, k := range keys[:min(len(keys), named)] {
		names = append(names, fmt.Sprintf("%s of %s", strings.TrimPrefix(k.Namespace+"/"+k.Name, "/"), k.Queue))
	}
	if more := len(keys) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	d.notify(member.Notify{Reason: "CutShort", Warning: true, Message: fmt.Sprintf("leaving: the contexts of %d "+
		"reconciles ended after %v, since the rest of LeaveTimeout is needed to hand over; other members repeat them: %s; "+
		"if they need longer, raise LeaveTimeout, and the Pod's terminationGracePeriodSeconds with it",
		len(keys), d.env.Clock.Mono()-time.Duration(d.leaving.Load()), strings.Join(names, ", "))})
}

// stillDraining returns the slots of a drain that was not called off. d.mu is held.
func (d *Driver) stillDraining(a member.Drain) slot.Set {
	var set slot.Set
	for _, s := range a.Slots.Slots() {
		if d.draining[s] == a.Round {
			set.Add(s)
		}
	}
	return set
}

// callOff cancels drains that have not begun yet.
func (d *Driver) callOff(set slot.Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range set.Slots() {
		delete(d.draining, s)
	}
}

// heldBack reports what keeps the slots of a drain from moving.
func (d *Driver) heldBack(p Part, a member.Drain) {
	d.mu.Lock()
	set := d.stillDraining(a)
	d.mu.Unlock()
	held := p.HeldBack(set)
	for _, text := range held {
		d.notify(member.Notify{Reason: "SlotHeldBack", Warning: true, Message: text})
	}
	if len(held) > 0 {
		d.env.After(10*HeldBackAfter, func() { d.heldBack(p, a) })
	}
}
