// Package replica drives one member.Member: it steps it with events and carries out its actions. The Driver never
// waits, and knows only what it is handed. A Replica hands it goroutines, a store and timers; the simulator its world.
package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
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
	Long   LongWrites
	Writes Writes
	Watch  Observer
	Log    logr.Logger
	// SetDeadline has gate and writes end at a time, on the clock of deadlines. own is that of the member's own Lease.
	SetDeadline func(at, own time.Duration)
	// Loads reads what members report of their slots' loads. It blocks.
	Loads func(ctx context.Context) ([]planner.LoadReport, error)
	// Memory measures the process's memory. It does not block for long.
	Memory func() planner.MemoryReport
	// Emit tells people.
	Emit func(ctx context.Context, n member.Notify)
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
	env      Env
	member   Member
	driver   *Driver
	requests *requests
	settler  *settler
	term     term
}

// New begins an incarnation.
func New(ctx context.Context, env Env) *Replica {
	r := &Replica{env: env, Calls: newCalls(ctx, env.Log)}
	env.State.Begin(env.Config.Self.ID, env.Clock.Late())
	r.member = env.Member()
	r.requests = &requests{store: env.Store, calls: r.Calls, loads: env.Loads, memory: env.Memory, failed: env.Failed}
	r.settler = newSettler(env.Writes)
	r.term = unlimited{Always{env.SetDeadline}}
	if env.Election != nil {
		e := newElector(*env.Election, &env)
		e.emit, e.complain = r.emit, r.requests.complain
		r.term = e
	}
	r.driver = NewDriver(DriverEnv{
		Config: env.Config, Member: r.member, Clock: env.Clock, State: env.State, Parts: env.Parts(r.Calls), Turns: r.term,
		Send: r.requests, Watch: env.Watch, Expire: env.Gate.Expire, Long: env.Long, Versions: env.Writes.Versions,
		Settle: r.settler.settle, After: r.After, Emit: r.emit, LeaveTimeout: env.LeaveTimeout,
	})
	r.requests.post = r.driver.Post
	return r
}

// ID is the incarnation's identity.
func (r *Replica) ID() string { return r.env.Config.Self.ID }

// LeaseUID is the UID of its Lease; empty: there is none yet.
func (r *Replica) LeaseUID() string { return r.driver.lease() }

// WantLong asks the member to allow writes that take longer than WriteTimeout, until a time by the monotonic clock. It
// may be called concurrently, and does not block.
func (r *Replica) WantLong(until time.Duration) { r.driver.Post(member.LongWrites{Until: until}) }

// Waiting says what all work waits for; "": for nothing.
func (r *Replica) Waiting() string { return r.term.Waiting() }

// Notify tells people.
func (r *Replica) Notify(n member.Notify) { r.driver.notify(n) }

func (r *Replica) emit(n member.Notify) { r.env.Emit(r.ctx, n) }

// Run returns how the incarnation ended. leave's end makes it leave.
func (r *Replica) Run(leave <-chan struct{}) member.Stop {
	defer r.end()
	r.driver.Post(member.Tick{}) // is the first event
	r.requests.watchTable()
	r.Go(func() { r.settler.run(r.ctx) })
	r.term.run(r.Calls)
	r.env.Beside()
	var giveUp <-chan time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for r.driver.Next() {
		}
		if stop := r.driver.Stopped(); stop != nil {
			return *stop
		}
		timer.Reset(min(r.member.Wake()-r.env.Clock.Mono(), LookEvery))
		select {
		case <-leave:
			leave = nil
			giveUp = time.After(r.env.LeaveTimeout)
			r.driver.Leave()
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
		case <-r.driver.box.filled:
		case <-timer.C:
			if !r.driver.Tick() {
				r.driver.Look()
			}
		}
	}
}

// end stops everything that the incarnation started, and gives up all slots.
func (r *Replica) end() {
	r.driver.shut()
	r.Calls.end()
	r.term.end()
	r.driver.release() // a load may have gone on until now
}
