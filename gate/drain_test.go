package gate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/gate"
	"github.com/rota-dev/rota/slot"
)

// R6: a reconcile that takes long holds up its own key, not the others of its slot.
func TestR6LongReconcileLetsOthersGoOn(t *testing.T) {
	g, c := started(t)
	idle := 0
	_, leaveLong := enter(t, g, 1, "long", false, gate.Admitted)
	c.add(time.Second)
	g.Drain(set(1), never, func(slot.Slot) { idle++ })
	enter(t, g, 1, "long", false, gate.Parked) // from another worker
	for range 3 {
		_, leave := enter(t, g, 1, "other", false, gate.Admitted)
		c.add(10 * time.Millisecond)
		leave()
	}
	_, leaveOther := enter(t, g, 1, "other", false, gate.Admitted)
	leaveLong()
	enter(t, g, 1, "another", false, gate.Parked)
	if idle != 0 {
		t.Fatal("idle while something is in flight")
	}
	leaveOther()
	if idle != 1 {
		t.Fatalf("idle called %d times, want once nothing is in flight", idle)
	}
	enter(t, g, 1, "late", true, gate.Parked)
}

// R6: where what is in flight takes longer than expected, what was parked meanwhile goes on.
func TestR6HardDrainGivesWay(t *testing.T) {
	g, c := started(t)
	idle := 0
	_, leave := enter(t, g, 1, "a", false, gate.Admitted)
	g.Drain(set(1), never, func(slot.Slot) { idle++ })
	enter(t, g, 1, "b", false, gate.Parked)
	c.add(300 * time.Millisecond)
	if parked, left := g.Review(set(1)); len(parked) != 0 || !left {
		t.Errorf("after a moment: %v go on, draining %v; want none yet", parked, left)
	}
	c.add(300 * time.Millisecond)
	parked, left := g.Review(set(1))
	if want := []gate.Key{key("b")}; !cmp.Equal(parked, want) || !left {
		t.Errorf("later: %v go on, draining %v; want %v", parked, left, want)
	}
	if again, _ := g.Review(set(1)); len(again) != 0 {
		t.Errorf("%v go on twice", again)
	}
	_, leaveB := enter(t, g, 1, "b", false, gate.Admitted)
	leaveB()
	leave()
	if idle != 1 {
		t.Errorf("idle called %d times, want 1", idle)
	}
	if _, left := g.Review(set(1)); left {
		t.Error("still draining")
	}
}

// R6: keys whose reconciles are known to take long are admitted if they end before what holds the slot back anyway.
func TestR6KnownLongKeysWait(t *testing.T) {
	g, c := started(t)
	g.SetDeadline(time.Hour)
	took := func(name string, d time.Duration) {
		_, leave := enter(t, g, 1, name, false, gate.Admitted)
		c.add(d)
		leave()
	}
	took("minute", time.Minute)
	took("second", time.Second)
	took("10 s", 10*time.Second)
	for range 20 {
		took("quick", 0)
	}
	_, leaveTen := enter(t, g, 1, "10 s", false, gate.Admitted)
	g.Drain(set(1), never, func(slot.Slot) {})
	enter(t, g, 1, "minute", false, gate.Parked)
	_, leaveSecond := enter(t, g, 1, "second", false, gate.Admitted)
	_, leaveQuick := enter(t, g, 1, "quick", false, gate.Admitted)
	leaveQuick()
	c.add(time.Second)
	leaveSecond()
	c.add(8500 * time.Millisecond)
	enter(t, g, 1, "second", false, gate.Parked)
	leaveTen()
	if got := g.Open(set(1), 7); len(got) != 2 {
		t.Errorf("parked: %v, want two", got)
	}
}

// R6: where most reconciles of a slot take long, those of unknown keys are expected to, or the slot would never move.
func TestR6SlowSlotsDrain(t *testing.T) {
	g, c := started(t)
	g.SetDeadline(time.Hour)
	for n := range 10 {
		_, leave := enter(t, g, 1, fmt.Sprint(n), false, gate.Admitted)
		c.add(2 * time.Second)
		leave()
	}
	_, leave := enter(t, g, 1, "0", false, gate.Admitted)
	c.add(time.Second)
	idle := false
	g.Drain(set(1), never, func(slot.Slot) { idle = true })
	enter(t, g, 1, "unknown", false, gate.Parked)
	leave()
	if !idle {
		t.Error("not idle")
	}
}

// R6, R9: a leaver ends what takes long. Deletions are not cut short: nobody else knows of them.
func TestR6CutsWhatTakesLong(t *testing.T) {
	g, c := started(t)
	long, leaveLong := enter(t, g, 1, "long", false, gate.Admitted)
	gone, leaveGone := enter(t, g, 1, "gone", true, gate.Admitted)
	stays, leaveStays := enter(t, g, 2, "stays", false, gate.Admitted)
	defer leaveStays()
	c.add(2 * time.Second)
	young, leaveYoung := enter(t, g, 1, "young", false, gate.Admitted)
	idle := false
	g.Drain(set(1), never, func(slot.Slot) { idle = true })
	g.Cut(set(1, 2), time.Second)
	if cause := long.Err(); cause == nil || !gate.CutShort(long) {
		t.Errorf("the reconcile that takes long goes on, cause %v", cause)
	}
	if err := errors.Join(gone.Err(), stays.Err(), young.Err()); err != nil {
		t.Errorf("cut short as well: a deletion (%v), what does not drain (%v), what is new (%v)", gone.Err(), stays.Err(), young.Err())
	}
	leaveLong()
	leaveGone()
	if idle {
		t.Error("idle with something in flight")
	}
	leaveYoung()
	if !idle {
		t.Error("not idle")
	}
	if got, want := g.Open(set(1), 7), []gate.Key{key("long")}; !cmp.Equal(got, want) {
		t.Errorf("the slot stays: %v are reconciled again, want %v", got, want)
	}
}

// R6: one in 20 objects of a slot takes a minute; the others wait about a moment when the slot moves, and it moves when
// the longest that is in flight has ended.
func TestR6DrainUnderLoad(t *testing.T) {
	const step, objects, workers = 10 * time.Millisecond, 40, 10
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		c := &clock{}
		g := gate.New(1, c.now)
		g.SetDeadline(time.Hour)
		g.Open(set(0), 1)
		takes := func(o int) time.Duration {
			if o < objects/20 {
				return time.Minute
			}
			return time.Duration(rng.IntN(100)) * time.Millisecond
		}
		type flight struct {
			object int
			until  time.Duration
			leave  func()
		}
		var queue []int
		var flights []flight
		asked := make([]time.Duration, objects) // since when an object waits; 0: it does not
		var stalls []time.Duration
		drained, drainAt := time.Duration(0), time.Duration(rng.IntN(60000))*time.Millisecond
		for drained == 0 && c.now() < 5*time.Minute {
			c.add(step)
			now := c.now()
			if now >= drainAt && now < drainAt+step {
				g.Drain(set(0), never, func(slot.Slot) { drained = now })
			}
			if now%(100*time.Millisecond) == 0 {
				parked, _ := g.Review(set(0))
				for _, k := range parked {
					var o int
					_, _ = fmt.Sscan(k.Name, &o)
					queue = append(queue, o)
				}
			}
			flights = slices.DeleteFunc(flights, func(f flight) bool {
				if now >= f.until {
					f.leave()
				}
				return now >= f.until
			})
			if o := rng.IntN(objects); rng.IntN(5) == 0 && asked[o] == 0 && !slices.ContainsFunc(flights, func(f flight) bool { return f.object == o }) {
				asked[o] = now
				queue = append(queue, o)
			}
			for len(flights) < workers && len(queue) > 0 && drained == 0 {
				o := queue[0]
				queue = queue[1:]
				_, leave, verdict := g.Enter(t.Context(), 0, key(fmt.Sprint(o)), false)
				if verdict != gate.Admitted {
					continue // parked
				}
				if o >= objects/20 && now >= drainAt {
					stalls = append(stalls, now-asked[o])
				}
				asked[o] = 0
				flights = append(flights, flight{o, now + takes(o), leave})
			}
		}
		worst := time.Duration(0)
		if len(stalls) > 0 {
			worst = slices.Max(stalls)
		}
		if took := drained - drainAt; drained == 0 || took > 90*time.Second || worst > time.Second {
			t.Errorf("seed %d: drained %v after it was asked for, others waited up to %v; want 90s and 1s at most", seed, took, worst)
		}
	}
}
