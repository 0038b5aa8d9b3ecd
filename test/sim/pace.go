package sim

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
)

// In paced lives, which every second one is, time passes between an event and its Step, between a Step and its actions,
// and from one action to the next, while gates and workers go on; and machines sleep.

// paced says whether the node's next event, or action, takes its time first: run goes on when that is over.
func (n *Node) paced() bool {
	w := n.w
	if !w.paced || n.paid {
		n.paid = false
		return false
	}
	n.paid = true
	var d time.Duration
	switch {
	case w.chance(w.Net.Stall):
		n.Pause(w.between(0, 20*time.Second))
		return true
	case n.crowded > w.now:
		d = w.between(0, time.Second)
	case w.rng.IntN(400) == 0:
		d = w.between(0, 300*time.Millisecond)
	case w.rng.IntN(10) == 0:
		d = w.between(0, 2*time.Millisecond)
	default:
		n.paid = false
		return false
	}
	n.busy = true
	w.after(d, func() {
		n.busy = false
		n.local(n.run)
	})
	return true
}

// wakeWithin is how soon production looks at its deadline once a machine is awake, whatever its timers wait for.
const wakeWithin = 500 * time.Millisecond

// HaltBefore stops the process before the next such action, after the Step that asks for it, until Resume.
func (n *Node) HaltBefore(such func(member.Action) bool) { n.halt = such }

// Sleep suspends the node's machine for d, or until Resume if d is 0: nothing runs, and its monotonic clock stands
// still.
func (n *Node) Sleep(d time.Duration) {
	if n.Dead || n.Paused {
		return
	}
	n.w.logf("the machine of %s sleeps", n.ID)
	n.w.Counts.Sleeps++
	n.clock.asleep, n.clock.sleptFrom = true, n.clock.now()
	n.Pause(d)
}

// awake ends a sleep.
func (n *Node) awake() {
	if !n.clock.asleep {
		return
	}
	n.clock.slept = n.clock.sleeps()
	n.clock.asleep = false
	// What would have expired meanwhile waits for a timer of a clock that stood still.
	n.w.after(n.w.between(0, wakeWithin), func() { n.local(n.expire) })
}

// sleeps is for how long the machine slept until now, by its own clock.
func (c *nodeClock) sleeps() time.Duration {
	if c.asleep {
		return c.slept + c.now() - c.sleptFrom
	}
	return c.slept
}
