package rota

import (
	"sync"
	"time"

	"github.com/rota-dev/rota/member"
)

// clock gives a member the time: by the monotonic clock of the process, which stops while the machine sleeps, and by
// how much that clock may be behind (rule R2). Its methods may be called concurrently.
type clock struct {
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

// newClock returns a clock that starts now.
func newClock(counting func() (time.Duration, bool)) *clock {
	c := &clock{
		start: time.Now(), counting: counting,
		wall: func(t time.Time) time.Duration { return time.Duration(t.UnixNano()) },
	}
	c.base = c.offsets(c.start)
	return c
}

// mono is the monotonic time since the start.
func (c *clock) mono() time.Duration { return time.Since(c.start) }

// now is the time of an event.
func (c *clock) now() member.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := time.Now()
	leap := time.Duration(0)
	for i, offset := range c.offsets(t) {
		d := offset - c.base[i]
		if max(d, -d) < jump {
			continue
		}
		c.base[i] = offset // one that was set back counts from there
		leap = max(leap, d)
	}
	c.ahead += leap
	return member.Time{Mono: t.Sub(c.start), Ahead: c.ahead, Wall: t.Unix()}
}

// late is the latest time that it can be. Deadlines are measured by it.
func (c *clock) late() time.Duration { return c.now().Late() }

// offsets are the leads of the counting clock and the wall clock over the monotonic one, of which t was just read.
func (c *clock) offsets(t time.Time) [2]time.Duration {
	mono := t.Sub(c.start)
	offsets := [2]time.Duration{0, c.wall(t) - mono}
	if now, ok := c.counting(); ok {
		offsets[0] = now - mono
	}
	return offsets
}
