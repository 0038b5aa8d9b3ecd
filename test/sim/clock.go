package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// clocks are the lowest and the highest rate of the members' monotonic clocks. The API servers' is 1.
type clocks struct{ low, high float64 }

// closeClocks are those of machines in order, and more.
var closeClocks = clocks{0.93, 1.07}

// bound is the ratio between the rates of two clocks below which the protocol keeps members apart: that of the lease to
// the deadline, by default (docs/guarantees.md).
const bound = 1.5

// lateBound is the rate of a member's clock, the API servers' being 1, up to which the fence wait outlasts every write
// that was admitted before: FenceDelay over WriteTimeout and the lag of the fence.
const lateBound = 2.5 / 2.3

// rate draws one.
func (c clocks) rate(rng *rand.Rand) float64 { return c.low + (c.high-c.low)*rng.Float64() }

// beyond says that nothing keeps members with such clocks apart. What stands in the table does not depend on clocks,
// nor that all is well in the end.
func (c clocks) beyond() bool { return c.high >= bound*c.low }

// nodeClock is the clock of a node's machine.
type nodeClock struct {
	w    *World
	rate float64 // the API servers' being 1
	// zero is what it showed at since: the world's beginning, or when its rate changed.
	zero, since time.Duration
	skew        int64 // of the wall clock, in seconds
	// asleep: the machine has been asleep since sleptFrom, by now. slept is for how long it was before.
	asleep           bool
	slept, sleptFrom time.Duration
}

// now is the node's own clock, which counts while its machine sleeps; mono is its monotonic one, which does not.
func (c *nodeClock) now() time.Duration {
	return c.zero + time.Duration(math.Floor(float64(c.w.now-c.since)*c.rate))
}

func (c *nodeClock) mono() time.Duration { return c.now() - c.sleeps() }

// late is the clock by which the node's deadlines are measured.
func (c *nodeClock) late() time.Duration { return c.time().Late() }

// takes returns for how long a time on the node's clock lasts.
func (c *nodeClock) takes(d time.Duration) time.Duration { return time.Duration(float64(d) / c.rate) }

// real is when the node's clock will show the given time.
func (c *nodeClock) real(clock time.Duration) time.Duration {
	return c.since + time.Duration(math.Ceil(float64(clock-c.zero)/c.rate)) + 1
}

func (c *nodeClock) time() member.Time {
	return member.Time{Mono: c.mono(), Ahead: c.sleeps(), Wall: c.w.Wall() + c.skew}
}

// setRate changes the rate of the node's clock from now on.
func (n *Node) setRate(rate float64) {
	n.w.logf("the clock of %s has rate %.2f", n.ID, rate)
	n.clock.zero, n.clock.since, n.clock.rate = n.clock.now(), n.w.now, rate
	n.w.at(n.clock.real(n.deadline), func() { n.local(n.expire) })
	if !n.Paused && !n.Dead {
		n.planTick()
	}
}

// TwoAtWork violates the rule that no two members work on a slot, unless the clocks excuse it.
func (w *World) TwoAtWork(s slot.Slot, a, b *Node) {
	w.violateAtGate("two at work", "programs of %s and %s work on slot %v", a.ID, b.ID, s)
}

// violateAtGate violates a rule of what members do at their gates, unless the clocks excuse it.
func (w *World) violateAtGate(rule, format string, args ...any) {
	if w.clocks.beyond() || rule == "late write" && w.clocks.high > lateBound {
		w.Counts.Excused++
		w.logf("excused by the clocks: %s: %s", rule, fmt.Sprintf(format, args...))
		return
	}
	w.violate(rule, format, args...)
}
