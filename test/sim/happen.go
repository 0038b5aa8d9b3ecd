package sim

import (
	"maps"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// pauses are lengths of pauses: below the retry period, around the deadline, beyond the lease.
var pauses = []time.Duration{2 * time.Second, 9 * time.Second, 16 * time.Second, 60 * time.Second}

// crowd is the number of replicas above which there are no more, but for churn.
const crowd = 5

// none is how long a fault lasts that could not be.
const none = -1

// faults are what goes wrong: each says for how long.
var faults = map[Fault]func(c *Chaos, n *Node) time.Duration{
	FaultPause: func(c *Chaos, n *Node) time.Duration {
		d := c.between(10*time.Millisecond, pauses[c.rng.IntN(len(pauses))])
		n.Pause(d)
		return d
	},
	FaultStall: func(c *Chaos, _ *Node) time.Duration {
		return c.net(0.02, func(n *Net) *float64 { return &n.Stall })
	},
	FaultCrashAtCall: func(c *Chaos, _ *Node) time.Duration {
		return c.net(0.02, func(n *Net) *float64 { return &n.Fall })
	},
	FaultCrash: func(c *Chaos, n *Node) time.Duration {
		n.Crash()
		if c.rng.IntN(4) > 0 {
			c.restart(n)
		} else {
			n.Replica.Gone = true
			c.grow()
		}
		return 0
	},
	FaultCrashAll: func(c *Chaos, _ *Node) time.Duration { c.crashAll(); return 0 },
	FaultLeave: func(c *Chaos, n *Node) time.Duration {
		c.leave(n)
		c.after(c.between(0, 5*time.Second), c.grow)
		return 0
	},
	FaultGrow: func(c *Chaos, _ *Node) time.Duration {
		if live := c.Live(); len(live) > crowd {
			c.leave(live[0])
		}
		c.grow()
		return 0
	},
	FaultTwin:    func(c *Chaos, n *Node) time.Duration { c.twin(n); return 0 },
	FaultRollout: func(c *Chaos, _ *Node) time.Duration { c.rollout(); return 5 * time.Second },
	FaultScale:   func(c *Chaos, _ *Node) time.Duration { c.scale(); return 20 * time.Second },
	FaultChurn:   func(c *Chaos, _ *Node) time.Duration { return c.churn() },
	FaultOutage: func(c *Chaos, _ *Node) time.Duration {
		d := c.between(time.Second, 20*time.Second)
		c.Net.Down = true
		c.after(d, func() { c.Net.Down = false })
		for _, n := range c.Live() {
			c.silence(n, d)
		}
		return d
	},
	FaultServerDown: func(c *Chaos, _ *Node) time.Duration {
		d := c.between(time.Second, 30*time.Second)
		c.breakServer(c.rng.IntN(len(c.servers)), d)
		return d
	},
	FaultServerLag: func(c *Chaos, _ *Node) time.Duration { return c.lag() },
	FaultWatchStall: func(c *Chaos, n *Node) time.Duration {
		d := c.between(time.Second, 40*time.Second)
		c.stallFeeds(n, d)
		if c.rng.IntN(2) == 0 {
			n.informer.until = c.now + d
		}
		return d
	},
	FaultWatchBreak: func(_ *Chaos, n *Node) time.Duration {
		n.Link.tables.cut()
		if n.Link.leases != nil {
			n.Link.leases.cut()
		}
		n.informer.cut()
		return 0
	},
	FaultCompaction: func(c *Chaos, n *Node) time.Duration {
		if c.rng.IntN(2) == 0 {
			n.Link.tables.cut()
			n.informer.cut()
		}
		c.compact()
		return 0
	},
	FaultAnswersLost: func(c *Chaos, _ *Node) time.Duration {
		return c.net(0.4, func(n *Net) *float64 { return &n.LoseResponse })
	},
	FaultRequestsLost: func(c *Chaos, _ *Node) time.Duration {
		c.Net.Refuse = 0.3
		d := c.net(0.3, func(n *Net) *float64 { return &n.LoseRequest })
		c.after(d, func() { c.Net.Refuse = 0 })
		return d
	},
	FaultLateWrites: func(c *Chaos, _ *Node) time.Duration { return c.net(0.4, func(n *Net) *float64 { return &n.Late }) },
	FaultLateSwaps: func(c *Chaos, n *Node) time.Duration {
		d := c.spell(n, Swap, true)
		if c.rng.IntN(2) == 0 {
			n.Link.tables.until = c.now + c.between(0, 15*time.Second)
		}
		return d
	},
	FaultRenewals: func(c *Chaos, n *Node) time.Duration { return c.spell(n, RenewLease, c.rng.IntN(2) == 0) },
	FaultReads: func(c *Chaos, n *Node) time.Duration {
		d := c.spell(n, ReadTable, false)
		c.stallFeeds(n, c.between(time.Second, 20*time.Second))
		return d
	},
	FaultDeaf: func(c *Chaos, n *Node) time.Duration {
		d := c.between(time.Second, 30*time.Second)
		n.Link.deaf = c.now + d
		c.silence(n, d)
		return d
	},
	FaultMute: func(c *Chaos, n *Node) time.Duration {
		d := c.between(time.Second, 30*time.Second)
		n.Link.mute = c.now + d
		return d
	},
	FaultClock: func(c *Chaos, n *Node) time.Duration { n.setRate(c.clocks.rate(c.rng)); return 0 },
	FaultSlowStores: func(c *Chaos, n *Node) time.Duration {
		n.Link.slow = c.between(0, 10*time.Second)
		return c.between(5*time.Second, 30*time.Second)
	},
	FaultLeaseDeleted: func(c *Chaos, n *Node) time.Duration {
		if c.alarm {
			return none // it may be all that tells what an old copy hides
		}
		c.Objects.RemoveLease(n.ID)
		return 0
	},
	FaultTableDeleted: func(c *Chaos, _ *Node) time.Duration { c.Objects.RemoveTable(); return 0 },
	FaultAllDeleted: func(c *Chaos, _ *Node) time.Duration {
		c.Objects.RemoveTable()
		for _, l := range c.Objects.Leases() {
			c.Objects.RemoveLease(l.ID)
		}
		return 0
	},
	FaultRestore: func(c *Chaos, _ *Node) time.Duration {
		if len(c.copies) == 0 || c.alarm {
			return none
		}
		c.Objects.RestoreTable(c.copies[c.rng.IntN(len(c.copies))])
		return 0
	},
	FaultOverwrite: func(c *Chaos, _ *Node) time.Duration {
		if !c.Told() || !c.overwrite() {
			return none
		}
		return 30 * time.Second
	},
	FaultForeignTable: func(c *Chaos, _ *Node) time.Duration {
		text := c.Objects.Text()
		if text == nil || c.alarm {
			return none
		}
		field, value := "format", strconv.Itoa(table.Format+1) // that no program reads: else it may be written meanwhile
		if c.rng.IntN(2) == 0 {
			field, value = "runs", "0-3 -\n"
		}
		edit := func(text map[string]string) { text[field] = value }
		if c.rng.IntN(2) == 0 {
			c.replaceTable(edit)
			return 30 * time.Second
		}
		// Or it is mended: nobody has written over it meanwhile.
		d := c.between(100*time.Millisecond, 15*time.Second)
		c.alarm = true
		c.Objects.EditTable(edit)
		c.after(d, func() {
			c.logf("the table is mended")
			c.alarm = false
			if now := c.Objects.Text(); now != nil && now[field] == value { // else it is another table by now
				c.Objects.EditTable(func(now map[string]string) { now[field] = text[field] })
			}
			c.Sync()
		})
		return d
	},
	FaultSleep: func(c *Chaos, n *Node) time.Duration {
		d := c.between(10*time.Millisecond, pauses[c.rng.IntN(len(pauses))])
		n.Sleep(d)
		return d
	},
	FaultCrowd: func(c *Chaos, n *Node) time.Duration {
		d := c.between(time.Second, 20*time.Second)
		n.crowded = c.now + d
		return d
	},
}

// fault makes something go wrong.
func (c *Chaos) fault() {
	n := c.pick()
	if n == nil {
		c.grow()
		return
	}
	kind := FaultPause + Fault(c.rng.IntN(int(FaultLeaseDeleted-FaultPause)))
	switch {
	case c.tamper && c.rng.IntN(4) == 0:
		kind = FaultLeaseDeleted + Fault(c.rng.IntN(int(FaultSleep-FaultLeaseDeleted)))
	case c.paced && c.rng.IntN(6) == 0:
		kind = FaultSleep + Fault(c.rng.IntN(int(Faults-FaultSleep)))
	case kind == FaultChurn && c.rng.IntN(4) > 0 || len(c.Live()) > crowd && (kind == FaultRollout || kind == FaultScale):
		kind = FaultPause // so many members take long to simulate
	}
	if kind.global() {
		n = nil
		c.logf("fault: %v", kind)
	} else {
		c.logf("fault: %v of %s", kind, n.ID)
	}
	if d := faults[kind](c, n); d != none {
		c.noteFault(kind, n, d)
	}
	c.Sync()
	if text := c.Objects.Text(); text != nil && !c.alarm {
		c.copies = append(c.copies, maps.Clone(text))
	}
}

// net sets a probability for a while, and returns how long.
func (c *Chaos) net(p float64, of func(*Net) *float64) time.Duration {
	d := c.between(time.Second, 20*time.Second)
	*of(&c.Net) = p
	c.after(d, func() { *of(&c.Net) = 0 })
	return d
}

// silence keeps back what servers send to a node.
func (c *Chaos) silence(n *Node, d time.Duration) {
	n.Link.tables.until, n.informer.until = c.now+d, c.now+d
	if n.Link.leases != nil {
		n.Link.leases.until = c.now + d
	}
}

// lag lets one server fall behind: by a fixed time, or more and more until it catches up.
func (c *Chaos) lag() time.Duration {
	s := &c.servers[c.rng.IntN(len(c.servers))]
	d := c.between(time.Second, 40*time.Second)
	if c.rng.IntN(2) == 0 {
		s.from, s.until = c.now, c.now+d
		return d
	}
	before := s.lag
	s.lag += c.between(100*time.Millisecond, 10*time.Second)
	c.after(d, func() { s.lag = before })
	return d
}

// churn goes up to twenty replicas, and down to one.
func (c *Chaos) churn() time.Duration {
	for range 20 - len(c.Live()) {
		c.after(c.between(0, 10*time.Second), c.grow)
	}
	c.after(c.between(15*time.Second, 25*time.Second), c.scale)
	return 25 * time.Second
}
