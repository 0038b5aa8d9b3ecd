// Package elapsed measures time that goes on while the machine sleeps.
package elapsed

import (
	"sync"
	"time"
)

// Clock has the monotonic clock of the process, which stops while the machine sleeps, and knows how much that clock may
// be behind. Its methods may be called concurrently.
type Clock struct {
	start time.Time
	// counting is a clock that does not stop while the machine sleeps; ok is false if there is none.
	counting func() (now time.Duration, ok bool)
	// wall is the wall clock, which is set forward once the machine is awake.
	wall func(time.Time) time.Duration

	mu sync.Mutex
	// base are the leads of the two over the monotonic clock when they were last read.
	base [2]time.Duration
	// ahead is the sum of their jumps forward since.
	ahead time.Duration
}

// jump is the smallest change of a lead that counts: the clocks are not read at the same moment.
const jump = 10 * time.Millisecond

// machine is the clock of New.
var machine = counting

// Simulated has New return clocks that count by the process's clocks alone. It is for tests in whose bubbles
// (testing/synctest) time stands still while that of the machine goes on: on a busy machine each step of such a test
// would pass for a sleep. Call it before all else, as from an init function.
func Simulated() { machine = func() (time.Duration, bool) { return 0, false } }

// New returns a clock that starts now.
func New() *Clock { return NewFrom(machine, nil) }

// NewFrom is New with other clocks, for tests. With wall nil it is the machine's.
func NewFrom(counting func() (now time.Duration, ok bool), wall func(time.Time) time.Duration) *Clock {
	if wall == nil {
		wall = func(t time.Time) time.Duration { return time.Duration(t.UnixNano()) }
	}
	c := &Clock{start: time.Now(), counting: counting, wall: wall}
	c.base = c.offsets(c.start)
	return c
}

// Mono is the monotonic time since the start.
func (c *Clock) Mono() time.Duration { return time.Since(c.start) }

// Read returns the time, the monotonic time since the start then, and how much that may be behind.
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
		c.base[i] = offset // one that was set back counts from there
		leap = max(leap, d)
	}
	c.ahead += leap
	return now, now.Sub(c.start), c.ahead
}

// Late is the latest time since the start that it can be. Deadlines are measured by it.
func (c *Clock) Late() time.Duration {
	_, mono, ahead := c.Read()
	return mono + ahead
}

// offsets are the leads of the counting clock and the wall clock over the monotonic one, of which t was just read.
func (c *Clock) offsets(t time.Time) [2]time.Duration {
	mono := t.Sub(c.start)
	offsets := [2]time.Duration{0, c.wall(t) - mono}
	if now, ok := c.counting(); ok {
		offsets[0] = now - mono
	}
	return offsets
}
