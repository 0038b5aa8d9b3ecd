package replica

import (
	"time"

	"github.com/rota-dev/rota/internal/elapsed"
	"github.com/rota-dev/rota/internal/protocol/member"
)

// Clock gives a member the time. Its methods may be called concurrently.
type Clock interface {
	// Now is the time of an event.
	Now() member.Time
	// Mono is the monotonic time, and Late the latest time that it can be (rule R2): deadlines are measured by it.
	Mono() time.Duration
	Late() time.Duration
}

// machine is a clock of the machine: its monotonic one, with how much that may be behind.
type machine struct{ *elapsed.Clock }

// NewClock returns a Clock that starts when of did.
func NewClock(of *elapsed.Clock) Clock { return machine{of} }

func (c machine) Now() member.Time {
	t, mono, ahead := c.Read()
	return member.Time{Mono: mono, Ahead: ahead, Wall: t.Unix()}
}

func (c machine) Late() time.Duration { return c.Now().Late() }
