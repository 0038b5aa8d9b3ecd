package rota

import (
	"time"

	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/member"
)

// clock gives a member the time: by the monotonic clock of the process, and by how much that clock may be behind (rule
// R2). Its methods may be called concurrently.
type clock struct{ *elapsed.Clock }

// newClock returns a clock that starts now.
func newClock(of *elapsed.Clock) *clock { return &clock{of} }

// Now is the time of an event.
func (c *clock) Now() member.Time {
	t, mono, ahead := c.Read()
	return member.Time{Mono: mono, Ahead: ahead, Wall: t.Unix()}
}

// Late is the latest time that it can be. Deadlines are measured by it.
func (c *clock) Late() time.Duration { return c.Now().Late() }
