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

// Observer is told of a member's events before it is stepped with them, and of its actions after they were begun. It
// must not block.
type Observer interface {
	Event(e member.Event)
	Action(a member.Action)
	// Seen tells of a version of the table that is newer than the one before, and comes before the Event that told it.
	Seen(s member.Snapshot)
}

// LongWrites counts the writes that may take longer than WriteTimeout (rule R2). A *gate.LongWrites does.
type LongWrites interface {
	Allow()
	// Withdraw calls ended once none is under way any more, unless Allow is called first.
	Withdraw(ended func())
}

// DriverEnv is what a Driver is handed. Its functions must not block.
type DriverEnv struct {
	Config member.Config
	Member Member
	Clock  Clock
	State  *State
	// Parts are who has which slots. Each slot is in one of them.
	Parts []Part
	Turns Turns
	Send  Requests
	Watch Observer
	// Expire has the gate look at its deadline, and says that it has just lapsed.
	Expire func() bool
	// Long are the writes that may take longer than WriteTimeout.
	Long LongWrites
	// Versions are those that the next owner of slots has to reach (rule R8), once Settle has called then: in any
	// goroutine, or before it returns.
	Versions func(set slot.Set) table.Versions
	Settle   func(s slot.Slot, then func())
	// After calls do after a while, unless the incarnation ends before.
	After func(wait time.Duration, do func())
	// Emit tells people.
	Emit func(member.Notify)
	// LeaveTimeout is how long a member may take to leave.
	LeaveTimeout time.Duration
}

// Driver carries out what a member decides. It has no goroutines, and time only from its clock: what takes time is done
// by what it is handed, which calls it back, in any goroutine. Post and Leave may be called concurrently. Next, Ready,
// Pending, Stopped, Tick and Look are called by one goroutine at a time.
type Driver struct {
	env DriverEnv
	box *mailbox
	// events are those that were taken from the mailbox, todo is what the member wants done after the last one, and told
	// says that this was Lapsed.
	events []member.Event
	todo   []member.Action
	lapsed bool
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

// NewDriver returns the driver of an incarnation, which begins with the first Tick.
func NewDriver(env DriverEnv) *Driver {
	return &Driver{env: env, box: newMailbox(), draining: map[slot.Slot]uint64{}}
}

// Post hands an event to the member.
func (d *Driver) Post(e member.Event) { d.box.put(e) }

// Next does the next thing of what has come: it carries out an action, or steps the member with an event, of which the
// actions are carried out before the next one. It returns whether more is left of what had come when Next was last
// called with nothing left.
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

// Ready reports whether there is something to do for Next.
func (d *Driver) Ready() bool {
	return len(d.todo) > 0 || d.stop == nil && (len(d.events) > 0 || !d.box.empty())
}

// Pending returns the action that Next carries out; nil: none.
func (d *Driver) Pending() member.Action {
	if len(d.todo) == 0 {
		return nil
	}
	return d.todo[0]
}

// Stopped says how the incarnation ends; nil: it goes on.
func (d *Driver) Stopped() *member.Stop { return d.stop }

// Tick posts a member.Tick if one is due, and reports whether it was.
func (d *Driver) Tick() (due bool) {
	if due = d.env.Clock.Mono() >= d.env.Member.Wake(); due {
		d.Post(member.Tick{})
	}
	return due
}

// Look has the gate look at its deadline, unless actions wait to be carried out: it is done after these. The deadline
// may have passed between an event and its actions, or while the machine slept. Then the gate has lapsed and the member
// does not know it yet (rule R13). Call it now and then, also while nothing comes.
func (d *Driver) Look() {
	if len(d.todo) == 0 && d.stop == nil && d.env.Expire() {
		d.deliver(member.Lapsed{})
	}
}

// step steps the member with an event that has come.
func (d *Driver) step(e member.Event) {
	if e, ok := d.answered(e); ok {
		d.observe(e)
		d.deliver(e)
	}
}

// answered returns the event to step for one that has come; false: none. If somebody else may have worked since slots
// were loaded, they are loaded again, and no owner can be told how new its informers must be.
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

// observe takes from an event what others than the member have to know.
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

// reads says that a table is one for members with the options of this one. The member goes by no other (rule R4).
func (d *Driver) reads(t *table.Table) bool {
	return t != nil && t.Slots == d.env.Config.Slots && t.Key == d.env.Config.Key
}

// do carries out an action. It takes effect at once, except for what takes time.
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

// shut shuts all slots, for an incarnation that has ended.
func (d *Driver) shut() {
	d.env.Long.Withdraw(func() {})
	for _, p := range d.env.Parts {
		d.callOff(p.Slots)
		p.Shut(p.Slots)
	}
}

// release drops what all slots have. Call it after shut, when nothing calls back any more.
func (d *Driver) release() {
	for _, p := range d.env.Parts {
		p.Release(p.Slots)
	}
}

// each calls do for every part that has some of the slots, with these.
func (d *Driver) each(set slot.Set, do func(p Part, its slot.Set)) {
	for _, p := range d.env.Parts {
		if its := set.Intersect(p.Slots); !its.Empty() {
			do(p, its)
		}
	}
}

// renewed returns what takes the answer to a renewal that is sent now.
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

// notify tells people. It may be called concurrently.
func (d *Driver) notify(n member.Notify) {
	switch n.Reason {
	case "Lapsed": // the member knows nothing of leader election's Lease
		_, own, _ := d.env.State.Deadline()
		renews := own > d.env.Clock.Late()+2*d.env.Config.RetryPeriod // its own Lease
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
	a, later, turn := d.env.Turns.Afresh(a)
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

// beginDrain drains those slots of a drain that was not called off meanwhile.
func (d *Driver) beginDrain(p Part, a member.Drain) {
	d.mu.Lock()
	defer d.mu.Unlock()
	set := d.stillDraining(a)
	look := p.Drain(Drain{
		Slots: set, Room: a.Room, LeaveBy: d.leaveBy, Cut: d.cut,
		Idle: func(s slot.Slot, gone []table.Gone) {
			d.env.Settle(s, func() { d.box.idle(a.Round, s, gone) }) // the member ignores a drain that was called off meanwhile
		},
	})
	d.review(look)
	d.env.After(HeldBackAfter, func() { d.heldBack(p, a) })
}

// review looks at a drain until it has ended.
func (d *Driver) review(look func() (more bool)) {
	d.env.After(reviewPeriod, func() {
		if look() {
			d.review(look)
		}
	})
}

// Leave has the member leave.
func (d *Driver) Leave() {
	d.leaving.Store(int64(d.env.Clock.Mono()))
	d.Post(member.Leave{})
}

// lease is the UID of the incarnation's Lease; empty: there is none yet. It may be called concurrently.
func (d *Driver) lease() string {
	if uid := d.leaseUID.Load(); uid != nil {
		return *uid
	}
	return ""
}

// handoverTime is how much of LeaveTimeout a leaving member keeps for the handover, but at most half. What runs longer
// is cut short then: a reconcile whose context has ended takes a moment to return, and the write that it waits for up
// to a few seconds. Then come a change of the table, and the deletion of the Lease.
const handoverTime = 6 * time.Second

// leaveBy returns when only a part of the time that a leaving member keeps for the handover is left, on the monotonic
// clock. Without a leave that is math.MaxInt64.
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

// stillDraining needs the lock.
func (d *Driver) stillDraining(a member.Drain) slot.Set {
	var set slot.Set
	for _, s := range a.Slots.Slots() {
		if d.draining[s] == a.Round {
			set.Add(s)
		}
	}
	return set
}

// callOff ends drains that have not begun yet.
func (d *Driver) callOff(set slot.Set) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range set.Slots() {
		delete(d.draining, s)
	}
}

// heldBack reports what keeps slots of a drain from moving on.
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
