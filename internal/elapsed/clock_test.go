package elapsed

import (
	"testing"
	"testing/synctest"
	"time"
)

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
				var slept, set time.Duration
				clock := NewFrom(
					func() (time.Duration, bool) { return time.Duration(time.Now().UnixNano()) + slept, !c.blind },
					func(t time.Time) time.Duration { return time.Duration(t.UnixNano()) + set })
				begun := time.Now()
				for i := range c.slept {
					time.Sleep(time.Second)
					slept += c.slept[i]
					set += c.set[i]
					if _, mono, _ := clock.Read(); mono != time.Since(begun) {
						t.Errorf("monotonic time %v, want %v", mono, time.Since(begun))
					}
				}
				if _, mono, ahead := clock.Read(); ahead != c.ahead || clock.Late() != mono+ahead {
					t.Errorf("ahead by %v, late %v, want %v more than %v", ahead, clock.Late(), c.ahead, mono)
				}
			})
		})
	}
}

// What the machine's own clock says is not ahead, or next to nothing, where nothing slept.
func TestCountingClock(t *testing.T) {
	c := New()
	for range 1000 {
		c.Read()
	}
	if _, _, ahead := c.Read(); ahead > time.Minute {
		t.Errorf("ahead by %v", ahead)
	}
}
