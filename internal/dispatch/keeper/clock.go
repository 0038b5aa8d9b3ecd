package keeper

import "time"

// clock translates between two clocks. The queue has the monotonic one: a worker counts its take by what passes, so a
// take must not end earlier because the machine's wall clock was set forward. The member's deadline is by Parts.Late,
// which counts such steps: nothing is handed out for longer than it allows, as it is then. All that callers see is by
// Late.
type clock struct {
	start    time.Time
	deadline time.Duration // the member's, by Late
	// lead is by how much Late is ahead of the monotonic clock.
	lead time.Duration
	// told is what the queue was told of last.
	told told
}

type told struct {
	deadline, lead time.Duration
	hands          bool
}

// jitter is the least change of lead that counts: the two clocks are not read at the same moment.
const jitter = time.Millisecond

// now returns the time by the queue's clock. It tells the queue until when keys may be handed out, if that has changed.
// d.mu is held.
func (d *Dispatcher) now() time.Duration {
	c := &d.clock
	mono := time.Since(c.start)
	if lead := d.parts.Late() - mono; lead-c.lead > jitter || c.lead-lead > jitter {
		c.lead = lead
	}
	if now := (told{c.deadline, c.lead, d.hands()}); now != c.told {
		c.told = now
		at := c.deadline - c.lead
		if !now.hands {
			at = min(at, mono)
		}
		d.queue.SetDeadline(mono, at)
	}
	return mono
}

// toLate turns times of the queue's clock into times of Late. d.mu is held.
func (d *Dispatcher) toLate(times ...*time.Duration) {
	for _, t := range times {
		*t += d.clock.lead
	}
}
