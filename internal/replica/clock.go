package replica

import (
	"time"

	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/internal/protocol/member"
)

// Clock is a member's source of time. Its methods may be called concurrently.
type Clock interface {
	// Now returns the time of an event.
	Now() member.Time
	// Mono returns the monotonic time, and Late the latest time that it can be (rule R2), which deadlines use.
	Mono() time.Duration
	Late() time.Duration
}

// machine is the machine's monotonic clock, together with how far that may lag.
type machine struct{ *elapsed.Clock }

// NewClock returns a Clock that starts when of did.
func NewClock(of *elapsed.Clock) Clock { return machine{of} }

func (c machine) Now() member.Time {
	t, mono, ahead := c.Read()
	return member.Time{Mono: mono, Ahead: ahead, Wall: t.Unix()}
}

func (c machine) Late() time.Duration { return c.Now().Late() }
