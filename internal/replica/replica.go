// Package replica drives one member.Member: it steps it with events and carries out its actions. The driver (driver.go)
// never waits. A Replica gives it goroutines, a mailbox, a store and timers.
package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// LookEvery is how often the deadline is checked, whatever else is due: timers stop while a machine sleeps and only go
// on once it is awake.
const LookEvery = 250 * time.Millisecond

// Writes is what is known of this process's writes. A delivery.Share knows it.
type Writes interface {
	// Versions are those that the next owner of slots has to reach (rule R8).
	Versions(set slot.Set) table.Versions
	// Unsettled says that the versions of some writes in a slot are not known yet. Settle waits for those.
	Unsettled(s slot.Slot) bool
	Settle(ctx context.Context, set slot.Set)
}

// Env is what a Replica is handed. Functions must not block, unless they say so.
type Env struct {
	Config member.Config
	// Member returns what decides. It is called once, when State has the incarnation's identity.
	Member func() Member
	Clock  Clock
	State  *State
	Store  store.Store
	// Election is nil unless the rota has to hold the Lease of a leader election.
	Election *Election
	// Parts are who has which slots. Each slot is in one of them.
	Parts  func(*Calls) []Part
	Gate   *gate.Gate
	Writes Writes
	Watch  Observer
	Log    logr.Logger
	// SetDeadline has gate and writes end at a time, on the clock of deadlines. own is that of the member's own Lease.
	SetDeadline func(at, own time.Duration)
	// Tell tells people.
	Tell func(ctx context.Context, n member.Notify)
	// Failed is told of errors of requests. The member decides what to do about them.
	Failed func(what string, err error)
	// Denied gets errors that end a member which has not joined, Fatal those that end any.
	Denied, Fatal <-chan error
	// Beside begins what runs beside the incarnation, in goroutines of its calls.
	Beside func()
	// LeaveTimeout is how long a member may take to leave. InFlight is what it names when it gives up then.
	LeaveTimeout time.Duration
	InFlight     func() []gate.Flight
}

// Replica is an incarnation. Its methods but Run may be called concurrently.
type Replica struct {
	*Calls
	env    Env
	member Member
	driver *driver
	box    *mailbox
	// settling are drained slots for which the versions of some writes are not known yet.
	settling *mailbox
	requests *requests
}

// New begins an incarnation.
func New(ctx context.Context, env Env) *Replica {
	r := &Replica{env: env, Calls: newCalls(ctx, env.Log), box: newMailbox(), settling: newMailbox()}
	env.State.begin(env.Config.Self.ID, env.Clock.Late())
	r.member = env.Member()
	r.requests = &requests{store: env.Store, calls: r.Calls, post: r.box.put, failed: env.Failed}
	var turns turns = always{env.SetDeadline}
	if env.Election != nil {
		e := newElector(*env.Election, &env)
		e.tell, e.complain = r.tell, r.requests.complain
		turns = e
	}
	r.driver = &driver{
		id: env.Config.Self.ID, config: env.Config, member: r.member, clock: env.Clock, state: env.State,
		parts: env.Parts(r.Calls), turns: turns, send: r.requests, watch: env.Watch, post: r.box.put, drained: r.drained,
		after: r.After, tell: r.tell, leaveTimeout: env.LeaveTimeout, draining: map[slot.Slot]uint64{},
	}
	return r
}

// ID is the incarnation's identity.
func (r *Replica) ID() string { return r.driver.id }

// LeaseUID is the UID of its Lease; empty: there is none yet.
func (r *Replica) LeaseUID() string {
	if uid := r.driver.leaseUID.Load(); uid != nil {
		return *uid
	}
	return ""
}

// Waiting says what all work waits for; "": for nothing.
func (r *Replica) Waiting() string { return r.driver.turns.waiting() }

// Notify tells people.
func (r *Replica) Notify(n member.Notify) { r.driver.notify(n) }

func (r *Replica) tell(n member.Notify) { r.env.Tell(r.ctx, n) }

// Run returns how the incarnation ended. leave's end makes it leave.
func (r *Replica) Run(leave <-chan struct{}) member.Stop {
	defer r.end()
	r.requests.watchTable()
	r.Go(r.settleDrained)
	r.driver.turns.run(r.Calls)
	r.env.Beside()
	r.step(member.Tick{})
	var giveUp <-chan time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for r.driver.stop == nil {
		timer.Reset(min(r.member.Wake()-r.env.Clock.Mono(), LookEvery))
		select {
		case <-leave:
			leave = nil
			giveUp = time.After(r.env.LeaveTimeout)
			r.carryOut(r.driver.leave())
		case err := <-r.env.Denied:
			if r.env.State.HasJoined() {
				continue // it worked before, so the permission may come back
			}
			return member.Stop{Err: err}
		case err := <-r.env.Fatal:
			return member.Stop{Err: err}
		case <-giveUp:
			if t := r.env.State.Table(); t != nil {
				r.driver.each(t.Owned(r.ID()), Part.Abandon)
			}
			return member.Stop{Err: fmt.Errorf("left after %v with work in flight, without having handed over all slots: %v",
				r.env.LeaveTimeout, r.env.InFlight())}
		case <-r.box.filled:
			for _, e := range r.box.take(r.env.Writes.Versions) {
				if e, ok := r.driver.answered(e); ok {
					r.step(e)
				}
			}
		case <-timer.C:
			if r.env.Clock.Mono() >= r.member.Wake() {
				r.step(member.Tick{})
			}
			r.look()
		}
	}
	return *r.driver.stop
}

// end stops everything that the incarnation started, and gives up all slots.
func (r *Replica) end() {
	for _, p := range r.driver.parts {
		r.driver.callOff(p.Slots)
		p.Shut(p.Slots)
	}
	r.Calls.end()
	r.driver.turns.end()
	for _, p := range r.driver.parts { // a load may have gone on until now
		p.Release(p.Slots)
	}
}

func (r *Replica) step(e member.Event) { r.carryOut(r.driver.step(e)) }

func (r *Replica) carryOut(all []member.Action) {
	for _, a := range all {
		r.driver.do(a)
	}
	if r.driver.stop == nil {
		r.look()
	}
}

// look has the gate check its deadline. It may have passed between a Step and its actions, or while the machine slept.
// Then the gate has lapsed and the member does not know it yet (rule R13).
func (r *Replica) look() {
	if r.env.Gate.Expire() {
		for _, a := range r.driver.lapse() {
			r.driver.do(a)
		}
	}
}

// drained reports a slot in which nothing is in flight any more. If the versions of some writes there are not known,
// deletions among them, settleDrained reports the slot later: its next owner has to know how new its informers must be
// (rule R8). gone are the deletions left to that owner. drained does not block.
func (r *Replica) drained(round uint64, s slot.Slot, gone []table.Gone) {
	if r.env.Writes.Unsettled(s) {
		r.settling.idle(round, s, gone)
	} else {
		r.box.idle(round, s, gone)
	}
}

// settleDrained reports drained slots once those versions are known, until the incarnation ends.
func (r *Replica) settleDrained() {
	for {
		select {
		case <-r.settling.filled:
		case <-r.ctx.Done():
			return
		}
		for _, e := range r.settling.take(func(set slot.Set) table.Versions {
			r.env.Writes.Settle(r.ctx, set)
			return nil
		}) {
			d, _ := e.(member.Drained)
			for _, s := range d.Slots.Slots() {
				var gone []table.Gone
				for _, g := range d.Gone {
					if g.Slot == s {
						gone = append(gone, g)
					}
				}
				r.box.idle(d.Round, s, gone) // the member ignores a drain that was called off meanwhile
			}
		}
	}
}
