package gate_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/slot"
)

// load is what one slot has to do.
type load struct {
	objects, workers int
	// rate is how many events a second come for random objects.
	rate float64
	// takes is how long the next reconcile of an object takes; those of long objects are not counted as waiting.
	takes func(rng *rand.Rand, object int) time.Duration
	long  func(object int) bool
	// leaves says that the member leaves: what is in flight for a second or more is cut short 12.5 s into the drain.
	leaves bool
}

// drain works in a time of its own, drains the slot at the given one, and returns how long that took, and for how long
// an object waited meanwhile. It gives up after 10 minutes.
func (l load) drain(t *testing.T, rng *rand.Rand, at time.Duration) (took, worst time.Duration) {
	const step, limit = 10 * time.Millisecond, 10 * time.Minute
	type flight struct {
		object int
		until  time.Duration
		ctx    context.Context
		leave  func()
	}
	c := &clock{}
	g := gate.New(1, c.now)
	g.SetDeadline(time.Hour)
	g.Open(set(0), 1)
	var queue []int
	var flights []flight
	asked := make([]time.Duration, l.objects) // since when an object waits; 0: it does not
	drained := false
	for !drained && c.now() < at+limit {
		c.add(step)
		now := c.now()
		if now >= at && now < at+step {
			g.Drain(set(0), never, func(slot.Slot) { drained = true })
		}
		if now%(100*time.Millisecond) == 0 {
			if l.leaves && now >= at+12500*time.Millisecond {
				g.Cut(set(0), time.Second)
			}
			parked, _ := g.Review(set(0))
			for _, k := range parked {
				var o int
				_, _ = fmt.Sscan(k.Name, &o)
				if !slices.Contains(queue, o) {
					queue = append(queue, o)
				}
			}
		}
		flights = slices.DeleteFunc(flights, func(f flight) bool {
			ended := now >= f.until || f.ctx.Err() != nil
			if ended {
				f.leave()
			}
			return ended
		})
		for n := l.rate * step.Seconds(); rng.Float64() < n; n-- {
			if o := rng.IntN(l.objects); asked[o] == 0 && !slices.ContainsFunc(flights, func(f flight) bool { return f.object == o }) {
				asked[o] = now
				queue = append(queue, o)
			}
		}
		for len(flights) < l.workers && len(queue) > 0 && !drained {
			o := queue[0]
			queue = queue[1:]
			ctx, leave, verdict := g.Enter(t.Context(), 0, key(fmt.Sprint(o)), false)
			if verdict != gate.Admitted {
				continue // parked
			}
			if now >= at && (l.long == nil || !l.long(o)) {
				worst = max(worst, now-max(asked[o], at))
			}
			asked[o] = 0
			flights = append(flights, flight{o, now + l.takes(rng, o), ctx, leave})
		}
	}
	for o, since := range asked {
		if since > 0 && (l.long == nil || !l.long(o)) {
			worst = max(worst, c.now()-max(since, at))
		}
	}
	return c.now() - at, worst
}

// R6: one in 20 objects of a slot takes a minute; the others wait about a moment when the slot moves, and it moves when
// the longest that is in flight has ended.
func TestR6DrainUnderLoad(t *testing.T) {
	long := func(o int) bool { return o < 2 }
	l := load{objects: 40, workers: 10, rate: 20, long: long, takes: func(rng *rand.Rand, o int) time.Duration {
		if long(o) {
			return time.Minute
		}
		return time.Duration(rng.IntN(100)) * time.Millisecond
	}}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		if took, worst := l.drain(t, rng, time.Duration(rng.IntN(60000))*time.Millisecond); took > 90*time.Second || worst > time.Second {
			t.Errorf("seed %d: drained after %v, others waited up to %v; want 90s and 1s at most", seed, took, worst)
		}
	}
}

// R6, R9: a slot that is always busy moves as well, though nobody knows how long its reconciles take. A leaver has time
// left for the handover.
func TestR6BusySlotsDrain(t *testing.T) {
	exponential := func(mean time.Duration) func(*rand.Rand, int) time.Duration {
		return func(rng *rand.Rand, _ int) time.Duration {
			return time.Duration(-math.Log(1-rng.Float64()) * float64(mean))
		}
	}
	uniform := func(least, most time.Duration) func(*rand.Rand, int) time.Duration {
		return func(rng *rand.Rand, _ int) time.Duration { return least + time.Duration(rng.Int64N(int64(most-least))) }
	}
	for _, test := range []struct {
		name string
		load load
		want time.Duration
	}{
		{"about a second, 20 workers", load{workers: 20, rate: 30, takes: exponential(time.Second)}, 40 * time.Second},
		{"about a second, 10 workers", load{workers: 10, rate: 20, takes: exponential(time.Second)}, 40 * time.Second},
		{"about half a second", load{workers: 10, rate: 30, takes: exponential(time.Second / 2)}, 40 * time.Second},
		{"half a second to one and a half", load{workers: 10, rate: 20, takes: uniform(time.Second/2, 3*time.Second/2)}, 40 * time.Second},
		{"one in 20 takes 10 s", load{workers: 10, rate: 10, takes: func(rng *rand.Rand, _ int) time.Duration {
			if rng.IntN(20) == 0 {
				return 10 * time.Second
			}
			return 20 * time.Millisecond
		}}, 80 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := test.load
			l.objects = 500
			for seed := range uint64(5) {
				l.leaves = false
				if took, _ := l.drain(t, rand.New(rand.NewPCG(seed, 0)), 10*time.Second); took > test.want {
					t.Errorf("seed %d: drained after %v, want it within %v", seed, took, test.want)
				}
				l.leaves = true
				if took, _ := l.drain(t, rand.New(rand.NewPCG(seed, 0)), 10*time.Second); took > 18*time.Second {
					t.Errorf("seed %d: a leaver drained after %v, want it within 18s", seed, took)
				}
			}
		})
	}
}
