// Package replica drives one member.Member: it steps the member with events and carries out its actions. A Driver never
// waits and uses only what its environment provides: goroutines, a store and timers in a Replica, and fakes in the
// simulator.
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

// LookEvery is how often the deadline is checked even if nothing else is due. Timers do not count while a machine
// sleeps, so they may fire late.
const LookEvery = 250 * time.Millisecond

// Writes tracks this process's writes. A delivery.Share implements it.
type Writes interface {
	// Versions returns the versions that the slots' next owner has to reach (rule R8).
	Versions(set slot.Set) table.Versions
	// Unsettled reports whether the versions of some writes in a slot are still unknown. Settle waits for them.
	Unsettled(s slot.Slot) bool
	Settle(ctx context.Context, set slot.Set)
}

// Env is the environment of a Replica. Its functions must not block unless noted.
type Env struct {
	Config member.Config
	// Member returns the decision maker. It is called once, after State has the incarnation's identity.
	Member func() Member
	Clock  Clock
	State  *State
	Store  store.Store
	// Election is nil unless the rota has to hold a leader election Lease.
	Election *Election
	// Parts returns the holders with their slots. Each slot belongs to one holder.
	Parts  func(*Calls) []Part
	Gate   *gate.Gate
	Long   LongWrites
	Writes Writes
	Watch  Observer
	Log    logr.Logger
	// SetDeadline sets when the gate and writes end, on the deadline clock. own is the deadline from the member's own
	// Lease.
	SetDeadline func(at, own time.Duration)
	// Loads reads the slot loads that members report. It blocks.
	Loads func(ctx context.Context) ([]planner.LoadReport, error)
	// Memory measures the process's memory. It does not block for long.
	Memory func() planner.MemoryReport
	// Emit logs a notice and creates an event for it.
	Emit func(ctx context.Context, n member.Notify)
	// Failed logs errors of requests. The member decides how to handle them.
	Failed func(what string, err error)
	// Denied delivers errors that end a member that has not joined. Fatal delivers errors that end any member.
	Denied, Fatal <-chan error
	// Beside starts the incarnation's background tasks in goroutines of its calls.
	Beside func()
	// LeaveTimeout is how long a member may take to leave. InFlight lists what is in flight, for the error after that.
	LeaveTimeout time.Duration
	InFlight     func() []gate.Flight
}

// Replica is an incarnation. Its methods except Run may be called concurrently.
type Replica struct {
	*Calls
	env      Env
	member   Member
	driver   *Driver
	requests *requests
	settler  *settler
	term     term
}

// New prepares an incarnation.
func New(ctx context.Context, env Env) *Replica {
	r := &Replica{env: env, Calls: NewCalls(ctx, env.Log, Goroutines{})}
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

// ID returns the incarnation's identity.
func (r *Replica) ID() string { return r.env.Config.Self.ID }

// LeaseUID returns the UID of the incarnation's Lease, empty before there is one.
func (r *Replica) LeaseUID() string { return r.driver.lease() }

// WantLong asks the member to allow writes that take longer than WriteTimeout, until the given time on the monotonic
// clock. It does not block.
func (r *Replica) WantLong(until time.Duration) { r.driver.Post(member.LongWrites{Until: until}) }

// Waiting describes what all work waits for, empty if work goes on.
func (r *Replica) Waiting() string { return r.term.Waiting() }

// Notify emits a notice.
func (r *Replica) Notify(n member.Notify) { r.driver.notify(n) }

func (r *Replica) emit(n member.Notify) { r.env.Emit(r.ctx, n) }

// Run runs the incarnation and returns how it ended. It leaves when leave is closed.
func (r *Replica) Run(leave <-chan struct{}) member.Stop {
	defer r.end()
	r.driver.Post(member.Tick{}) // the first event
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
				continue // it was granted before, so it may come back
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

// end stops everything that the incarnation started and gives up all slots.
func (r *Replica) end() {
	r.driver.shut()
	r.Calls.end()
	r.term.end()
	r.driver.release() // a load may have continued until now
}
