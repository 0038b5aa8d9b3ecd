package engine

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/store/memory"
)

// fakeClock is a clock in a synctest bubble. slept is what its counting clock has that the monotonic one has not.
type fakeClock struct {
	replica.Clock
	slept atomic.Int64
	// jumpAt is how many readings from now the machine has slept for a moment; 0: it does not.
	jumpAt atomic.Int64
}

func newFakeClock() *fakeClock {
	f := &fakeClock{}
	f.Clock = replica.NewClock(elapsed.NewFrom(func() (time.Duration, bool) {
		if f.jumpAt.Load() > 0 && f.jumpAt.Add(-1) == 0 {
			f.slept.Add(int64(20 * time.Millisecond))
		}
		return time.Duration(time.Now().UnixNano() + f.slept.Load()), true
	}, nil))
	return f
}

// A machine sleeps past the deadline: what is in flight is cut short soon after it wakes, though timers wait on, and no
// write is sent.
func TestR02SleepCounts(t *testing.T) {
	for phase := range 4 { // of the renewals, by which a deadline is looked at, too
		synctest.Test(t, func(t *testing.T) { sleeps(t, time.Duration(phase)*500*time.Millisecond) })
	}
}

func sleeps(t *testing.T, phase time.Duration) {
	r := testRota(t)
	f := newFakeClock()
	r.clock, r.store = f.Clock, memory.New().Client(nil)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan member.Stop)
	i := newIncarnation(ctx, r)
	go func() { ended <- i.run(ctx) }()
	time.Sleep(time.Minute + phase)
	flight, land, verdict := r.gate.Enter(t.Context(), 3, gate.Key{Name: "a"}, false)
	if verdict != gate.Admitted {
		t.Fatal(verdict)
	}
	f.slept.Add(int64(20 * time.Second))
	if left := r.untilDeadline(); left > 0 {
		t.Errorf("a write may be sent for %v more", left)
	}
	woke := time.Now()
	<-flight.Done()
	if took := time.Since(woke); took > 2*replica.LookEvery {
		t.Errorf("cut short %v after the machine woke", took)
	}
	land()
	time.Sleep(10 * time.Second)
	if open := r.gate.OpenSet(); open.Len() < int(r.cfg.Slots) {
		t.Errorf("%d slots open 10 s later", open.Len())
	}
	leave()
	if stop := <-ended; stop.Err != nil {
		t.Error(stop.Err)
	}
}

// slowAnswer answers a renewal just before the deadline, once, and lets the deadline pass between the Step and its
// first action.
type slowAnswer struct {
	store.Store
	rota  *Engine
	fake  *fakeClock
	armed atomic.Bool
}

func (s *slowAnswer) RenewLease(ctx context.Context, l member.Lease,
	timeout time.Duration,
) (member.Lease, member.Outcome, error) {
	l, outcome, err := s.Store.RenewLease(ctx, l, timeout)
	if s.armed.Swap(false) {
		time.Sleep(s.rota.untilDeadline() - time.Microsecond)
		s.fake.jumpAt.Store(2) // the Step reads it, then the gate
	}
	return l, outcome, err
}

// A renewal is answered in time, and the process stands still before its gate hears of the new deadline: the member has
// to know that the gate lapsed, or it takes its slots for open for ever.
func TestR13DeadlinePassesBetweenStepAndAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		f := newFakeClock()
		slow := &slowAnswer{Store: memory.New().Client(nil), rota: r, fake: f}
		r.clock, r.store = f.Clock, slow
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan member.Stop)
		i := newIncarnation(ctx, r)
		go func() { ended <- i.run(ctx) }()
		time.Sleep(time.Minute)
		slow.armed.Store(true)
		time.Sleep(time.Minute)
		if slow.armed.Load() {
			t.Error("no deadline passed between a Step and its actions")
		}
		tab := r.tableOf()
		owned := tab.Owned(i.ID())
		if open := r.gate.OpenSet(); open != owned || owned.Empty() {
			t.Errorf("the gate has %d slots open, of %d that are owned", open.Len(), owned.Len())
		}
		leave()
		if stop := <-ended; stop.Err != nil {
			t.Error(stop.Err)
		}
	})
}

// An expelled process joins again when nothing of its former incarnation is in flight, and gives up where that takes
// too long.
func TestR13RejoinsWhenNothingIsInFlight(t *testing.T) {
	const s = slot.Slot(3)
	synctest.Test(t, func(t *testing.T) {
		r := testRota(t)
		if !r.idle(t.Context()) {
			t.Error("not idle with nothing in flight")
		}
		r.gate.SetDeadline(r.now() + time.Minute)
		r.gate.Open(slot.SetOf(slot.Range{First: s, Last: s}), 1)
		_, leave, verdict := r.gate.Enter(t.Context(), s, gate.Key{Name: "a"}, false)
		if verdict != gate.Admitted {
			t.Fatal(verdict)
		}
		r.gate.Shut(r.gate.OpenSet())
		begun := time.Now()
		if r.idle(t.Context()) || time.Since(begun) < r.cfg.RenewDeadline {
			t.Errorf("idle, or given up, after %v, while a reconcile is running", time.Since(begun))
		}
		unknown := r.gate.Hold(s) // a write of unknown outcome outlives its reconcile
		time.AfterFunc(time.Second, leave)
		time.AfterFunc(2*time.Second, unknown)
		begun = time.Now()
		if !r.idle(t.Context()) || time.Since(begun) < 2*time.Second {
			t.Errorf("idle after %v, want it to be when the write cannot take effect any more", time.Since(begun))
		}
	})
}
