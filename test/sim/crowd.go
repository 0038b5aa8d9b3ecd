package sim

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// CrowdSlots is the number of slots of a Crowd.
const CrowdSlots = 4096

// Crowd is a rota of many members, in a world without faults.
type Crowd struct {
	*World
	made int // pods
}

// NewCrowd returns a rota of n members that has nothing to do.
func NewCrowd(n int) (*Crowd, error) {
	c := &Crowd{World: New(Options{Slots: CrowdSlots})}
	t := table.New(CrowdSlots, slot.KeyName, 1000)
	for i := range n {
		id := fmt.Sprintf("web-%d-1", i)
		t.Put(table.Member{
			ID: id, Pod: fmt.Sprintf("web-%d", i), PodUID: crowdUID(i), Container: "main", Build: "v1", Weight: 1,
			MinFormat: table.OldestFormat, MaxFormat: table.Format, Joined: 1,
		})
		var set slot.Set
		set.AddRange(slot.Range{First: slot.Slot(i * CrowdSlots / n), Last: slot.Slot((i+1)*CrowdSlots/n - 1)})
		t.Update(set, func(r *table.Run) { r.Owner, r.Epoch = id, 1000 })
	}
	t.Seal(1001)
	c.Put(t)
	for range n {
		c.Join("v1")
		c.Run(2 * time.Second / time.Duration(n))
	}
	c.Run(5 * time.Second)
	return c, c.fault(c.Unsettled())
}

// fault says what is not as it should be.
func (c *Crowd) fault(why string) error {
	switch {
	case c.Failed():
		return errors.New(c.Violations()[0].String())
	case why != "":
		return errors.New(why)
	}
	return nil
}

func crowdUID(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// Join starts a member.
func (c *Crowd) Join(build string) *Node {
	c.made++
	return c.Start(&Replica{
		Pod: fmt.Sprintf("web-%d", c.made-1), PodUID: crowdUID(c.made - 1), Container: "main", Build: build, Weight: 1,
	})
}

// Traffic is what members and API server say to each other in a while.
type Traffic struct {
	// Requests are by their names, such as "renew lease". Events are watch events, Tables those of the table among them.
	Requests       map[string]int
	Events, Tables int
	// TableBytes is the text of the tables delivered.
	TableBytes int
	// Took is how long it lasted, Idle the longest time that nobody worked on a slot, to a tenth of a second.
	Took, Idle time.Duration
	// Moved is how many slots have other owners after it.
	Moved int
	// Busiest is the most requests in a second.
	Busiest int
}

// Total is the number of requests.
func (t *Traffic) Total() (n int) {
	for _, count := range t.Requests {
		n += count
	}
	return n
}

// Beyond is how many requests and watch events there are beyond those of a steady state.
func (t *Traffic) Beyond(steady Traffic) (requests, events int) {
	share := float64(t.Took) / float64(steady.Took)
	for name, n := range t.Requests {
		requests += max(0, n-int(share*float64(steady.Requests[name])))
	}
	return requests, t.Events - int(share*float64(steady.Events))
}

// versionSize is the size of the text of a version of the table.
type versionSize struct {
	version string
	bytes   int
}

// sizeOf is the size of the text of a version of the table; 0: it is missing, or cannot be read.
func (w *World) sizeOf(s member.Snapshot) int {
	if s.Table == nil {
		return 0
	}
	if s.Version != w.bytes.version {
		w.bytes = versionSize{version: s.Version}
		for _, text := range table.Encode(s.Table) {
			w.bytes.bytes += len(text)
		}
	}
	return w.bytes.bytes
}

// During counts what is said while do runs, and after it until done says that it is over, or for a time.
func (c *Crowd) During(limit time.Duration, do func(), done func() bool) Traffic {
	before, begun := c.Messages, c.Now()
	requests, owners := maps.Clone(before.Requests), c.owners()
	do()
	t := Traffic{Requests: map[string]int{}}
	last := c.total()
	var idle [CrowdSlots]time.Duration
	const sample = 100 * time.Millisecond
	for {
		c.Run(sample)
		passed := c.Now() - begun
		var open slot.Set
		for _, n := range c.Live() {
			open = open.Union(n.Open())
		}
		for s := range idle {
			if open.Has(slot.Slot(s)) {
				idle[s] = 0
				continue
			}
			idle[s] += sample
			t.Idle = max(t.Idle, idle[s])
		}
		if passed%time.Second < sample {
			t.Busiest = max(t.Busiest, c.total()-last)
			last = c.total()
		}
		if passed >= limit || done != nil && done() || c.Failed() {
			break
		}
	}
	t.Took, t.Busiest = c.Now()-begun, max(t.Busiest, c.total()-last)
	t.Events, t.Tables = c.Messages.Events-before.Events, c.Messages.Tables-before.Tables
	t.TableBytes = c.Messages.TableBytes - before.TableBytes
	for name, n := range c.Messages.Requests {
		if n > requests[name] {
			t.Requests[name] = n - requests[name]
		}
	}
	for s, owner := range c.owners() {
		if owners[s] != owner {
			t.Moved++
		}
	}
	return t
}

func (c *Crowd) total() int {
	t := Traffic{Requests: c.Messages.Requests}
	return t.Total()
}

// owners are those of all slots.
func (c *Crowd) owners() (out [CrowdSlots]string) {
	for _, r := range c.Objects.Table().Table.Runs {
		for s := int(r.Slots.First); s <= int(r.Slots.Last) && s < len(out); s++ {
			out[s] = r.Owner
		}
	}
	return out
}

// Settled says that all is well.
func (c *Crowd) Settled() bool { return c.Unsettled() == "" }

// Roll replaces the first so many members by those of another build, some at a time: so many start, and when all of
// them have joined, so many of the others leave. Slots move from these to those (rule R9).
func (c *Crowd) Roll(build string, members, batch int, limit time.Duration) Traffic {
	old := c.Live()[:members]
	var starting, leaving []*Node
	next := func() {
		starting = nil
		for range min(batch, len(old)) {
			starting = append(starting, c.Join(build))
		}
	}
	return c.During(limit, next, func() bool {
		for _, n := range starting {
			if _, joined := c.Objects.Table().Table.Member(n.ID); !joined {
				return false
			}
		}
		if len(starting) > 0 {
			leaving, old = old[:len(starting)], old[len(starting):]
			starting = nil
			for _, n := range leaving {
				n.Leave()
			}
		}
		for _, n := range leaving {
			if !n.Dead {
				return false
			}
		}
		if len(old) > 0 {
			next()
			return false
		}
		return c.Settled()
	})
}
