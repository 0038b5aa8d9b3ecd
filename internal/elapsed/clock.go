// Package elapsed measures time that includes the machine's sleep.
package elapsed

import (
	"sync"
	"time"
)

// Clock combines the process's monotonic clock, which stops while the machine sleeps, with an upper bound for how far
// that clock lags. Its methods may be called concurrently.
type Clock struct {
	start time.Time
	// counting is a clock that does not stop while the machine sleeps; ok is false if there is none.
	counting func() (now time.Duration, ok bool)
	// wall is the wall clock, which is set forward after the machine wakes up.
	wall func(time.Time) time.Duration

	mu sync.Mutex
	// base holds the leads of the two clocks over the monotonic clock when they were last read.
	base [2]time.Duration
	// ahead is the sum of their jumps forward.
	ahead time.Duration
}

// jump is the smallest change of a lead that counts: the clocks are not read at the same moment.
const jump = 10 * time.Millisecond

// machine is the counting clock used by New.
var machine = counting

// Simulated makes New return clocks that use only the process's clocks. It is for tests with testing/synctest: in their
// bubbles time stands still while the machine's time continues, so on a busy machine each step would look like a sleep.
// Call it before anything else, for example in an init function.
func Simulated() { machine = func() (time.Duration, bool) { return 0, false } }

// New returns a clock that starts now.
func New() *Clock { return NewFrom(machine, nil) }

// NewFrom is New with other clocks, for tests. If wall is nil, it uses the machine's.
func NewFrom(counting func() (now time.Duration, ok bool), wall func(time.Time) time.Duration) *Clock {
	if wall == nil {
		wall = func(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }
	}
	c := &Clock{start: time.Now(), counting: counting, wall: wall}
	c.base = c.offsets(c.start)
	return c
}

// Mono returns the monotonic time since the start.
func (c *Clock) Mono() time.Duration { return time.Since(c.start) }

// Read returns the time, the monotonic time since the start, and how far the latter may lag.
func (c *Clock) Read() (now time.Time, mono, ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = time.Now()
	leap := time.Duration(0)
	for i, offset := range c.offsets(now) {
		d := offset - c.base[i]
		if max(d, -d) < jump {
			continue
		}
		c.base[i] = offset // a clock that was set back counts from there
		leap = max(leap, d)
	}
	c.ahead += leap
	return now, now.Sub(c.start), c.ahead
}

// Late returns the latest time since the start that it can be. Deadlines use it.
func (c *Clock) Late() time.Duration {
	_, mono, ahead := c.Read()
	return mono + ahead
}

// offsets returns the leads of the counting clock and the wall clock over the monotonic clock at t.
func (c *Clock) offsets(t time.Time) [2]time.Duration {
	mono := t.Sub(c.start)
	offsets := [2]time.Duration{0, c.wall(t) - mono}
	if now, ok := c.counting(); ok {
		offsets[0] = now - mono
	}
	return offsets
}
