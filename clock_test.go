package rota

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/member"
)

// fakeClock is a clock in a synctest bubble. slept is what its counting clock has that the monotonic one has not, set
// what somebody set the wall clock forward by.
type fakeClock struct {
	*clock
	slept, set atomic.Int64
	blind      bool // there is no counting clock
	// jumpAt is how many readings from now the machine has slept for a moment; 0: it does not.
	jumpAt atomic.Int64
}

func newFakeClock() *fakeClock {
	f := &fakeClock{}
	f.clock = newClock(func() (time.Duration, bool) {
		if f.jumpAt.Load() > 0 && f.jumpAt.Add(-1) == 0 {
			f.slept.Add(int64(2 * jump))
		}
		return time.Duration(time.Now().UnixNano() + f.slept.Load()), !f.blind
	})
	f.wall = func(t time.Time) time.Duration { return time.Duration(t.UnixNano() + f.set.Load()) }
	return f
}

func TestClockCountsSleep(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		name  string
		blind bool
		// slept and set are how much the machine slept, and by how much its wall clock was set, at each step.
		slept, set []time.Duration
		ahead      time.Duration
	}{
		{"awake", false, []time.Duration{0, 0}, []time.Duration{0, 0}, 0},
		{"sleeps", false, []time.Duration{20 * s, 0}, []time.Duration{20 * s, 0}, 20 * s},
		{"sleeps twice", false, []time.Duration{20 * s, 5 * s}, []time.Duration{20 * s, 5 * s}, 25 * s},
		{"sleeps where only the wall clock tells", true, []time.Duration{20 * s}, []time.Duration{20 * s}, 20 * s},
		{"is paused, and its wall clock set later", false, []time.Duration{0, 0}, []time.Duration{0, 20 * s}, 20 * s},
		{"wall clock is set back", false, []time.Duration{0}, []time.Duration{-20 * s}, 0},
		{"wall clock is set back, then it sleeps", true, []time.Duration{0, 5 * s}, []time.Duration{-20 * s, 5 * s}, 5 * s},
		{"sleeps while the wall clock is set back", false, []time.Duration{5 * s}, []time.Duration{-20 * s}, 5 * s},
		{"readings at different moments", false, []time.Duration{2 * ms, -2 * ms, 2 * ms, -2 * ms},
			[]time.Duration{0, 0, 0, 0}, 0},
		{"many short ones", false, []time.Duration{6 * ms, 6 * ms, 6 * ms}, []time.Duration{6 * ms, 6 * ms, 6 * ms}, 12 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeClock()
				f.blind = c.blind
				f.base = f.offsets(f.start)
				begun := time.Now()
				for i := range c.slept {
					time.Sleep(time.Second)
					f.slept.Add(int64(c.slept[i]))
					f.set.Add(int64(c.set[i]))
					now := f.now()
					if now.Mono != time.Since(begun) {
						t.Errorf("monotonic time %v, want %v", now.Mono, time.Since(begun))
					}
				}
				if got := f.now().Ahead; got != c.ahead {
					t.Errorf("ahead by %v, want %v", got, c.ahead)
				}
			})
		})
	}
}

// What the machine's own clock says is not ahead, or next to nothing, where nothing slept.
func TestCountingClock(t *testing.T) {
	c := newClock(counting)
	for range 1000 {
		c.now()
	}
	if got := c.now().Ahead; got > time.Minute {
		t.Errorf("ahead by %v", got)
	}
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
	r.clock, r.store = f.clock, store.NewMemory().Client(nil)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan member.Stop)
	i := newIncarnation(r)
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
	if took := time.Since(woke); took > 2*lookEvery {
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
	rota  *Rota
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
		slow := &slowAnswer{Store: store.NewMemory().Client(nil), rota: r, fake: f}
		r.clock, r.store = f.clock, slow
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan member.Stop)
		i := newIncarnation(r)
		go func() { ended <- i.run(ctx) }()
		time.Sleep(time.Minute)
		slow.armed.Store(true)
		time.Sleep(time.Minute)
		if slow.armed.Load() {
			t.Error("no deadline passed between a Step and its actions")
		}
		tab := r.tableOf()
		owned := tab.Owned(i.id)
		if open := r.gate.OpenSet(); open != owned || owned.Empty() {
			t.Errorf("the gate has %d slots open, of %d that are owned", open.Len(), owned.Len())
		}
		leave()
		if stop := <-ended; stop.Err != nil {
			t.Error(stop.Err)
		}
	})
}
