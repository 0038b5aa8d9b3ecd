package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Chaos is a life of a rota under faults, made up from a seed.
type Chaos struct {
	*World
	pods   int
	build  int
	tamper bool
	// formats: members read different newest table formats.
	formats bool
	copies  []map[string]string
	// jobs has its own source of chance, so that lives without duties stay what they were before there were any. There are
	// that many duties.
	jobs   *rand.Rand
	duties int
	// people give orders, if orders is set. They too have a source of chance of their own.
	people *rand.Rand
	orders bool
	// eveners have shares evened out, if evens is set.
	eveners *rand.Rand
	evens   bool
	// placers start canaries and pin objects, if places is set.
	placers *rand.Rand
	places  bool
	// alarm: an old copy was put over the table, so that members stop until somebody deletes it.
	alarm bool
}

// RunChaos lives through a life of a seed and returns its world.
func RunChaos(seed uint64, trace func(string)) *World {
	return RunLife(seed, Options{Trace: trace})
}

// RunLife is RunChaos with other options. The seed decides Slots, Duties, Tune, Load and Trial.
func RunLife(seed uint64, o Options) *World { return runChaos(seed, o, spoiled{}) }

func runChaos(seed uint64, o Options, s spoiled) *World {
	o.Seed = seed
	c := &Chaos{World: New(o)}
	defer c.End()
	c.wild, c.spoiled = true, s
	c.longWrites = seed%10 == 7 || seed%10 == 8 // the others draw what they did before there were long writes
	members := c.draw()
	c.logf("seed %d: %d members, %d slots, %+v, paced %v, tampering %v",
		seed, members, c.opts.Slots, c.objects.kind, c.paced, c.tamper)
	c.users()
	c.scrubs()
	c.giveOrders()
	c.evenOut()
	c.place()
	for range members {
		c.after(c.between(0, 3*time.Second), c.grow)
	}
	c.Run(c.between(0, 25*time.Second))
	for faults := 3 + c.rng.IntN(24); faults > 0 && !c.Failed(); faults-- {
		c.fault()
		if c.rng.IntN(2) == 0 {
			c.Run(c.between(0, 12*time.Second))
		} else {
			c.Run(c.between(0, 300*time.Millisecond))
		}
	}
	c.heal()
	c.Settle(4 * time.Minute)
	if (c.orders || c.places) && !c.Failed() {
		c.endOrders(60)
		c.Settle(4 * time.Minute)
	}
	return c.World
}

// draw decides what the life is like, and returns the number of members.
func (c *Chaos) draw() int {
	members := 1 + c.rng.IntN(5)
	slots := []slot.Count{16, 16, 16, 32, 64}[c.rng.IntN(5)]
	if c.rng.IntN(100) == 0 {
		slots, members = 256, 12
	}
	c.opts.Slots = slots
	c.slots = make([]slotHistory, c.opts.everything())
	moves := c.rng.IntN(3)
	c.populate(stream.Config{Moves: moves == 1, Namesakes: moves == 2, Selects: c.rng.IntN(2) == 0})
	c.paced, c.passesOn = c.rng.IntN(2) == 0, c.rng.IntN(2) == 0
	switch c.rng.IntN(6) {
	default:
		c.clocks = closeClocks
	case 0, 1: // any within the bound that have the API server's among them
		low := 1/bound + (1-1/bound)*c.rng.Float64()
		c.clocks = clocks{low, low * bound * 0.995}
	case 2:
		c.clocks = clocks{0.5, 2}
	}
	if c.rng.IntN(2) == 0 {
		c.servers[0].lag = c.between(100*time.Millisecond, 10*time.Second) // all along
		c.logf("one API server lags by %v", c.servers[0].lag)
	}
	c.tamper, c.formats = c.rng.IntN(3) == 0, c.rng.IntN(3) == 0
	if c.rng.IntN(4) == 0 {
		c.opts.Tune = func(cfg *member.Config) { cfg.Self.Weight = 1 + len(cfg.Self.ID+cfg.Self.PodUID)%3 }
	}
	c.drawDuties()
	c.drawTasks()
	c.drawOutlives()
	c.drawOrders()
	c.drawLoads()
	c.drawPlaces()
	c.crashed = c.restart
	c.ended = func(n *Node) {
		switch {
		case n.Replica.Gone:
		case errors.Is(n.Stopped.Err, member.ErrIdentity):
			n.Replica.Gone = true
		default:
			c.restart(n)
		}
	}
	return members
}

// heal ends all faults.
func (c *Chaos) heal() {
	c.over = true
	c.relabel()
	c.Net, c.servers, c.longWrites = Net{}, [2]server{}, false
	for _, n := range c.Live() {
		n.Link.deaf, n.Link.mute, n.crowded = 0, 0, 0
		n.setRate(closeClocks.rate(c.rng))
		n.Resume()
		clear(n.Link.bad)
		n.Link.slow = quick
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
	c.giveDuties(r)
	c.giveFormat(r)
	c.giveLabels(r)
	c.Start(r)
}

// drawDuties decides how many duties there are: none in two of three lives.
func (c *Chaos) drawDuties() {
	c.jobs = rand.New(rand.NewPCG(c.opts.Seed, 2)) // must be repeatable
	if c.jobs.IntN(3) == 0 {
		c.duties = 1 + c.jobs.IntN(8)
	}
}

// drawOutlives decides whether work outlives members: in one of four lives.
func (c *Chaos) drawOutlives() {
	if rand.New(rand.NewPCG(c.opts.Seed, 3)).IntN(4) > 0 { // must be repeatable
		return
	}
	tune := c.opts.Tune
	c.opts.Tune = func(cfg *member.Config) {
		cfg.Outlives = true
		if tune != nil {
			tune(cfg)
		}
	}
}

// giveDuties decides what a pod can do: its build has all but one duty, or all of them. Where members read different
// formats, some read of no duties.
func (c *Chaos) giveDuties(r *Replica) {
	if c.duties == 0 {
		return
	}
	lacks := -1
	if c.duties > 1 && c.build%2 == 1 {
		lacks = c.build % c.duties
	}
	var names []string
	for i := range c.duties {
		if i != lacks {
			names = append(names, fmt.Sprintf("d%d", i))
		}
	}
	r.Duties = table.JoinDuties(names...)
	if c.formats {
		r.MaxFormat = table.OldestFormat + c.jobs.IntN(table.DutyFormat)
	}
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

// spell lets one kind of a node's requests go wrong for a while, and returns how long.
func (c *Chaos) spell(n *Node, name string, late bool) time.Duration {
	d := c.between(time.Second, 20*time.Second)
	c.logf("%s of %s goes wrong for %v, late %v", name, n.ID, d, late)
	n.Link.bad[name] = spell{c.now + d, late}
	return d
}

// overwrite puts an old copy over the table, under its UID, and deletes it half a minute later. It says whether there
// was one.
func (c *Chaos) overwrite() bool {
	text := c.Objects.Text()
	if len(c.copies) == 0 || text == nil || c.alarm {
		return false
	}
	old := c.copies[c.rng.IntN(len(c.copies))]
	for range 10 { // one of the same table
		if old["uid"] == text["uid"] && old["epoch"] != text["epoch"] {
			break
		}
		old = c.copies[c.rng.IntN(len(c.copies))]
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
		n.Link.tables.until = c.now + d
	}
	if which != 2 && n.Link.leases != nil {
		n.Link.leases.until = c.now + d
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
