package member_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/store/memory"
)

// replica runs one member. It has no objects to load, so it answers requests for slots at once.
type replica struct {
	member *member.Member
	gate   *gate.Gate
	store  store.Store
	begun  time.Time
	// events is the queue of what happened. In production it has no limit.
	events chan member.Event
	// unwatch ends the current watch of Leases.
	unwatch context.CancelFunc
	stop    *member.Stop
}

// now is the time of an event. In production Ahead counts the time that the machine slept.
func (r *replica) now() member.Time {
	return member.Time{Mono: time.Since(r.begun), Wall: time.Now().Unix()}
}

// run steps the member until it ends. It leaves when leave is closed. ctx ends the watches.
func (r *replica) run(ctx context.Context, leave <-chan struct{}) error {
	go func() {
		_ = r.store.WatchTable(ctx, func(s member.Snapshot, listed bool) {
			r.events <- member.TableSeen{Snapshot: s, Listed: listed}
		})
	}()
	r.step(ctx, member.Tick{})
	for r.stop == nil {
		select {
		case e := <-r.events:
			r.step(ctx, e)
		case <-leave:
			leave = nil
			r.step(ctx, member.Leave{})
		case <-time.After(min(r.member.Wake()-r.now().Mono, 250*time.Millisecond)):
			r.step(ctx, member.Tick{})
		}
	}
	r.unwatch()
	return r.stop.Err
}

// step feeds an event to the member and carries out its actions, in order.
func (r *replica) step(ctx context.Context, e member.Event) {
	for _, a := range r.member.Step(r.now(), e) {
		r.do(ctx, a)
	}
	if r.stop == nil && r.gate.Expire() {
		r.step(ctx, member.Lapsed{})
	}
}

func (r *replica) do(ctx context.Context, a member.Action) {
	switch a := a.(type) {
	// What the gate does takes effect before the next Step.
	case member.Open:
		r.gate.Open(a.Slots, a.Epoch)
	case member.Shut:
		r.gate.Shut(a.Slots)
	case member.Deadline:
		r.gate.SetDeadline(a.At)

	// What is asked for slots is answered with their Round.
	case member.Warm:
		go r.tell(member.Warmed(a))
	case member.Load:
		go r.tell(member.Loaded{Slots: a.Slots, Round: a.Round})
	case member.Drain:
		never := func(slot.Slot) bool { return false }
		r.gate.Drain(a.Slots, never, func(s slot.Slot) {
			go r.tell(member.Drained{Slots: slot.SetOf(slot.Range{First: s, Last: s}), Round: a.Round})
		})
	case member.Hold, member.Release: // there are no objects

	// Requests run on their own. Each is sent once.
	case member.CreateLease:
		go r.renew(ctx, a.Lease, a.Timeout, r.store.CreateLease)
	case member.RenewLease:
		go r.renew(ctx, a.Lease, a.Timeout, r.store.RenewLease)
	case member.ReadTable:
		go r.read(ctx)
	case member.CreateTable:
		go func() {
			s, o, _ := r.store.CreateTable(ctx, a.Table, a.Timeout)
			r.tell(member.Swapped{Serial: a.Serial, Outcome: o, Snapshot: s})
		}()
	case member.Swap:
		go func() {
			s, o, _ := r.store.SwapTable(ctx, a.Table, a.UID, a.Version, a.Timeout)
			r.tell(member.Swapped{Serial: a.Serial, Outcome: o, Snapshot: s})
		}()
	case member.DeleteLease:
		go func() {
			o, _ := r.store.DeleteLease(ctx, a.ID, a.UID, a.Version, a.Timeout)
			r.tell(member.LeaseDeleted{ID: a.ID, Outcome: o})
		}()
	case member.WatchLeases:
		r.unwatch()
		ctx, r.unwatch = context.WithCancel(ctx)
		go func() {
			_ = r.store.WatchLeases(ctx, a.All, a.IDs, func(l store.Leases) {
				r.tell(member.LeasesSeen{Leases: l.Leases, Gone: l.Gone, Complete: l.Complete, Watch: a.Serial})
			})
		}()

	case member.ReadLoads:
		go r.tell(member.LoadsSeen{Serial: a.Serial}) // nobody reports
	case member.Notify: // for the log
	case member.Stop:
		r.stop = &a
	}
}

func (r *replica) tell(e member.Event) { r.events <- e }

func (r *replica) renew(ctx context.Context, l member.Lease, timeout time.Duration,
	call func(context.Context, member.Lease, time.Duration) (member.Lease, member.Outcome, error),
) {
	start := r.now().Late() // before it is sent
	renewed, outcome, _ := call(ctx, l, timeout)
	r.tell(member.Renewed{Start: start, Outcome: outcome, Lease: renewed})
}

func (r *replica) read(ctx context.Context) {
	begun := r.now().Mono
	s, err := r.store.ReadTable(ctx)
	if err != nil {
		r.tell(member.ReadFailed{})
		return
	}
	r.tell(member.TableSeen{Snapshot: s, Consistent: true, Begun: begun})
}

// A member alone makes the table, gets all slots, and leaves.
func Example() {
	cfg := member.Config{
		Self:          table.Member{ID: "web-0-x7k2p", Pod: "web-0"},
		Slots:         8,
		LeaseDuration: time.Second, // the first start of a rota takes that long
		FenceDelay:    500 * time.Millisecond,
		JoinDelay:     time.Millisecond,
	}
	cfg.SetDefaults()
	if err := cfg.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &replica{
		member: member.New(cfg), store: memory.New().Client(nil), begun: time.Now(),
		events: make(chan member.Event, 1000), unwatch: func() {},
	}
	r.gate = gate.New(cfg.Slots, func() time.Duration { return r.now().Late() })
	leave := make(chan struct{})
	go func() {
		defer close(leave)
		for {
			if open := r.gate.OpenSet(); open.Len() == int(cfg.Slots) {
				fmt.Println("works on slots", open.String())
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	fmt.Println("left:", r.run(ctx, leave))
	// Output:
	// works on slots 0-7
	// left: <nil>
}
