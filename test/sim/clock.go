package sim

import (
	"fmt"
	"math/rand/v2"
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

// setRate changes the rate of the node's clock from now on.
func (n *Node) setRate(rate float64) {
	n.w.logf("the clock of %s has rate %.2f", n.ID, rate)
	n.zero, n.since, n.rate = n.clock(), n.w.now, rate
	n.w.at(n.real(n.deadline), func() { n.local(n.expire) })
	if !n.Paused && !n.Dead {
		n.planTick()
	}
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
