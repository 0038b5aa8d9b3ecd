package keeper

import "time"

// clock translates between two clocks. The queue uses the monotonic clock: workers measure their takes by the time that
// passes, so a take must not end early because the machine's wall clock was set forward. The member's deadline is by
// Parts.Late, which counts such jumps: nothing is handed out for longer than that deadline allows. Callers see only
// times by Late.
type clock struct {
	start    time.Time
	deadline time.Duration // the member's, by Late
	// lead is how far Late is ahead of the monotonic clock.
	lead time.Duration
	// reported is what the queue was last given.
	reported reported
}

type reported struct {
	deadline, lead time.Duration
	hands          bool
}

// jitter is the smallest change of lead that counts, since the two clocks are not read at the same moment.
const jitter = time.Millisecond

// now returns the time by the queue's clock. It updates the queue's deadline if that has changed. d.mu is held.
func (d *Dispatcher) now() time.Duration {
	c := &d.clock
	mono := time.Since(c.start)
	if lead := d.parts.Late() - mono; lead-c.lead > jitter || c.lead-lead > jitter {
		c.lead = lead
	}
	if now := (reported{c.deadline, c.lead, d.hands()}); now != c.reported {
		c.reported = now
		at := c.deadline - c.lead
		if !now.hands {
			at = min(at, mono)
		}
		d.queue.SetDeadline(mono, at)
	}
	return mono
}

// toLate converts times of the queue's clock to Late. d.mu is held.
func (d *Dispatcher) toLate(times ...*time.Duration) {
	for _, t := range times {
		*t += d.clock.lead
	}
}
