package sim

import (
	"fmt"
	"maps"
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// Chaos is a life of a rota under faults, made up from a seed.
type Chaos struct {
	*World
	pods   int
	build  int
	tamper bool
	twins  bool
	// formats: members read different newest table formats. In deep lives.
	formats bool
	copies  []map[string]string
	// alarm: an old copy was put over the table, so that members stop until somebody deletes it.
	alarm bool
}

// RunChaos lives through a life of a seed and returns its world.
func RunChaos(seed uint64, trace func(string)) *World {
	return runChaos(seed, Options{Trace: trace}, spoiled{})
}

// DrawChaos is RunChaos with a Timeline.
func DrawChaos(seed uint64) (*World, *Timeline) {
	t := &Timeline{}
	return runChaos(seed, Options{Timeline: t}, spoiled{}), t
}

func runChaos(seed uint64, o Options, s spoiled) *World {
	o.Seed, o.Wild, o.Slots = seed, true, 16
	c := &Chaos{World: New(o)}
	c.spoiled = s
	var members int
	if seed < DeepFrom {
		c.opts.Slots = []slot.Count{16, 16, 32, 64}[c.rng.IntN(4)]
		members = 2 + c.rng.IntN(4)
		if c.rng.IntN(25) == 0 {
			c.opts.Slots, members = 256, 12
		}
		c.slots = make([]slotHistory, c.opts.Slots)
	} else {
		members = c.deepen()
	}
	weights := c.rng.IntN(4) == 0
	c.opts.Tune = func(cfg *member.Config) {
		if weights {
			cfg.Self.Weight = 1 + len(cfg.Self.ID+cfg.Self.PodUID)%3
		}
	}
	if !c.deep {
		c.tamper = c.rng.IntN(3) == 0
		c.twins = seed%10 == 8 // the lives of the other seeds stay as they are
	}
	c.logf("seed %d: %d members, %d slots, tampering %v", seed, members, c.opts.Slots, c.tamper)
	for range members {
		c.after(c.between(0, 3*time.Second), c.grow)
	}
	calm := 25 * time.Second
	if c.deep {
		calm = c.between(0, calm)
	}
	c.Run(calm)
	for faults := 3 + c.rng.IntN(24); faults > 0 && !c.Failed(); faults-- {
		if c.deep {
			c.deepFault()
		} else {
			c.fault()
		}
		if c.rng.IntN(2) == 0 {
			c.Run(c.between(0, 12*time.Second))
		} else {
			c.Run(c.between(0, 300*time.Millisecond))
		}
	}
	c.calm()
	c.Settle(4 * time.Minute)
	return c.World
}

// calm ends all faults.
func (c *Chaos) calm() {
	c.Net = Net{}
	if c.deep {
		c.heal()
	}
	for _, n := range c.Live() {
		n.Resume()
		clear(n.bad)
		n.Slow = Slow{Warm: 20 * time.Millisecond, Load: 10 * time.Millisecond}
	}
	c.logf("no more faults")
}

// grow starts a new pod.
func (c *Chaos) grow() {
	c.pods++
	pod := fmt.Sprintf("p%d", c.pods)
	r := &Replica{Pod: pod, Container: "main", Build: fmt.Sprintf("v%d", c.build), Weight: 1}
	if c.rng.IntN(2) == 0 {
		r.PodUID = "uid-" + pod
	}
	if c.formats {
		r.MaxFormat = table.OldestFormat + c.rng.IntN(2)
	}
	c.Start(r)
}

// twin starts a second process that has a replica's pod name. It may turn out to be the only one.
func (c *Chaos) twin(n *Node) {
	r := *n.Replica
	r.PodUID = ""
	c.logf("a second %s is started", r.Pod)
	c.Start(&r)
}

// pick returns a live replica, or nil.
func (c *Chaos) pick() *Node {
	live := c.Live()
	if len(live) == 0 {
		return nil
	}
	return live[c.rng.IntN(len(live))]
}

// restart starts the replica again after a moment, as the kubelet does.
func (c *Chaos) restart(n *Node) {
	c.after(c.between(300*time.Millisecond, 5*time.Second), func() {
		if n.Replica.Gone || c.running(n.Replica) {
			return
		}
		c.Counts.Restarts++
		c.Start(n.Replica)
	})
}

func (c *Chaos) running(r *Replica) bool {
	for _, n := range c.Live() {
		if n.Replica == r {
			return true
		}
	}
	return false
}

// leave sends SIGTERM, and SIGKILL after the grace period.
func (c *Chaos) leave(n *Node) {
	n.Replica.Gone = true
	n.Leave()
	c.after(60*time.Second, n.Crash)
}

// pauses are lengths of pauses: below the retry period, around the deadline, beyond the lease.
var pauses = []time.Duration{2 * time.Second, 9 * time.Second, 16 * time.Second, 60 * time.Second}

// fault makes something go wrong.
func (c *Chaos) fault() {
	n := c.pick()
	if n == nil {
		c.grow()
		return
	}
	spell := func(f Fault, change func(*Net)) {
		change(&c.Net)
		d := c.between(time.Second, 20*time.Second)
		c.trouble(f, nil, d)
		c.after(d, func() { c.Net = Net{} })
	}
	kind := c.rng.IntN(24)
	if c.tamper && c.rng.IntN(4) == 0 {
		kind = 24 + c.rng.IntN(5)
	}
	switch kind {
	case 0, 1, 2:
		d := c.between(10*time.Millisecond, pauses[c.rng.IntN(len(pauses))])
		c.trouble(FaultPause, n, d)
		n.Pause(d)
	case 3, 4:
		c.trouble(FaultCrash, n, 0)
		n.Crash()
		if c.rng.IntN(4) > 0 {
			c.restart(n)
		} else {
			n.Replica.Gone = true
			c.grow()
		}
	case 5, 6:
		c.trouble(FaultLeave, n, 0)
		c.leave(n)
		c.after(c.between(0, 5*time.Second), c.grow)
	case 7:
		if c.twins {
			c.trouble(FaultTwin, n, 0)
			c.twin(n)
		} else {
			c.trouble(FaultGrow, nil, 0)
			c.grow()
		}
	case 8:
		c.trouble(FaultRollout, nil, 5*time.Second)
		c.rollout()
	case 9:
		c.trouble(FaultScale, nil, 20*time.Second)
		c.scale()
	case 10:
		c.logf("API server down")
		spell(FaultOutage, func(net *Net) { net.Down = true })
		for _, n := range c.Live() {
			c.stallFeeds(n, c.between(0, 20*time.Second))
		}
	case 11, 12:
		d := c.between(time.Second, 40*time.Second)
		c.trouble(FaultWatchStall, n, d)
		c.stallFeeds(n, d)
	case 13:
		c.trouble(FaultWatchBreak, n, 0)
		n.tables.relist()
		if n.leases != nil {
			n.leases.relist()
		}
	case 14:
		spell(FaultAnswersLost, func(net *Net) { net.LoseResponse = 0.4 })
	case 15:
		spell(FaultLateWrites, func(net *Net) { net.Late = 0.4 })
	case 16:
		spell(FaultRequestsLost, func(net *Net) { net.LoseRequest, net.Refuse = 0.3, 0.3 })
	case 17:
		if !c.tamper {
			spell(FaultStall, func(net *Net) { net.Stall = 0.02 })
		}
	case 18:
		c.trouble(FaultSlowStores, n, near)
		n.Slow = Slow{Warm: c.between(0, 10*time.Second), Load: c.between(0, 5*time.Second)}
	case 19:
		c.trouble(FaultCrashAll, nil, 0)
		c.crashAll()
	case 20, 21:
		c.trouble(FaultLateSwaps, n, c.spell(n, Swap, true))
		if c.rng.IntN(2) == 0 {
			n.tables.until = c.now + c.between(0, 15*time.Second)
		}
	case 22:
		c.trouble(FaultRenewals, n, c.spell(n, RenewLease, c.rng.IntN(2) == 0))
	case 23:
		c.trouble(FaultReads, n, c.spell(n, ReadTable, false))
		c.stallFeeds(n, c.between(time.Second, 20*time.Second))
	case 24:
		c.trouble(FaultLeaseDeleted, n, 0)
		c.logf("the Lease of %s is deleted by hand", n.ID)
		c.Objects.RemoveLease(n.ID)
	case 25:
		c.trouble(FaultTableDeleted, nil, 0)
		c.logf("the table is deleted by hand")
		c.Objects.RemoveTable()
	case 26:
		if len(c.copies) > 0 {
			c.trouble(FaultRestore, nil, 0)
			c.logf("an old copy of the table is restored under a new UID")
			c.Objects.RestoreTable(c.copies[c.rng.IntN(len(c.copies))])
		}
	case 27:
		c.trouble(FaultAllDeleted, nil, 0)
		c.logf("the table and all Leases are deleted by hand")
		c.Objects.RemoveTable()
		for _, l := range c.Objects.Leases() {
			c.Objects.RemoveLease(l.ID)
		}
	case 28:
		if c.Told() && c.overwrite() {
			c.trouble(FaultOverwrite, nil, 30*time.Second)
		}
	}
	c.Sync()
	if text := c.Objects.Text(); text != nil && !c.alarm {
		c.copies = append(c.copies, maps.Clone(text))
	}
}

// spell lets one kind of a node's requests go wrong for a while, and returns how long.
func (c *Chaos) spell(n *Node, name string, late bool) time.Duration {
	d := c.between(time.Second, 20*time.Second)
	c.logf("%s of %s goes wrong for %v, late %v", name, n.ID, d, late)
	n.bad[name] = spell{c.now + d, late}
	return d
}

// overwrite puts an old copy over the table, under its UID, and deletes it half a minute later. It says whether there was one.
func (c *Chaos) overwrite() bool {
	text := c.Objects.Text()
	if len(c.copies) == 0 || text == nil || c.alarm {
		return false
	}
	old := c.copies[c.rng.IntN(len(c.copies))]
	if c.deep {
		for range 10 { // one of the same table
			if old["uid"] == text["uid"] && old["epoch"] != text["epoch"] {
				break
			}
			old = c.copies[c.rng.IntN(len(c.copies))]
		}
	}
	if old["uid"] != text["uid"] || old["epoch"] == text["epoch"] {
		return false
	}
	c.logf("an old copy is put over the table")
	c.replaceTable(func(text map[string]string) {
		clear(text)
		maps.Copy(text, old)
	})
	return true
}

// replaceTable changes the table's text into one that stops the members, and deletes it half a minute later.
func (c *Chaos) replaceTable(edit func(text map[string]string)) {
	c.alarm = true
	c.Objects.EditTable(edit)
	c.after(30*time.Second, func() {
		c.logf("the table is deleted by hand, to end the alarm")
		c.alarm = false
		c.Objects.RemoveTable()
		c.Sync()
	})
}

func (c *Chaos) stallFeeds(n *Node, d time.Duration) {
	which := c.rng.IntN(3)
	c.logf("watches of %s stall for %v (%d)", n.ID, d, which)
	if which != 1 {
		n.tables.until = c.now + d
	}
	if which != 2 && n.leases != nil {
		n.leases.until = c.now + d
	}
}

// rollout replaces every replica by one of a new build.
func (c *Chaos) rollout() {
	c.build++
	c.logf("rollout of v%d", c.build)
	at := time.Duration(0)
	for _, n := range c.Live() {
		if n.Replica.Gone {
			continue
		}
		at += c.between(0, 4*time.Second)
		c.after(at, c.grow)
		c.after(at+c.between(0, 4*time.Second), func() { c.leave(n) })
	}
}

// scale goes down to one replica, and up again.
func (c *Chaos) scale() {
	live := c.Live()
	if len(live) == 0 {
		return
	}
	c.logf("down to one")
	for _, n := range live[1:] {
		c.after(c.between(0, 2*time.Second), func() { c.leave(n) })
	}
	for range live[1:] {
		c.after(c.between(5*time.Second, 20*time.Second), c.grow)
	}
}

// crashAll ends every process at once.
func (c *Chaos) crashAll() {
	for _, n := range c.Live() {
		if c.rng.IntN(3) > 0 {
			n.Crash()
			c.restart(n)
		}
	}
}
