package sim

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
)

// Names of requests, for holds and counts.
const (
	CreateLease = "create lease"
	RenewLease  = "update lease"
	DeleteLease = "delete lease"
	ReadTable   = "get table"
	CreateTable = "create table"
	Swap        = "update table"
	ReadLoads   = "list reports"
	Warm        = "warm"
	Load        = "load"
	Drain       = "drain"
)

// decided looks at what the driver is about to carry out.
func (n *Node) decided(action member.Action) {
	n.w.logf("%s → %v", n.ID, action)
	switch a := action.(type) {
	case member.WatchLeases:
		if a.All && !n.planner && n.w.named[n.ID] > 0 {
			n.w.Counts.Planners++
		}
		n.planner = a.All
	case member.DeleteLease:
		if a.ID != n.ID {
			n.w.Coverage.Rules[1]++
		}
	case member.Hold:
		n.Holds += a.Slots.Len()
	case member.Warm:
		n.Warms += a.Slots.Len()
	case member.Load:
		n.checks.checkLoad(a)
		if !a.Held {
			n.Loads += a.Slots.Len()
			n.w.Coverage.Rules[8]++
		}
		n.checks.beginLoad(a)
	case member.Drain:
		n.checks.checkDrain(a)
	case member.Open:
		n.checks.checkOpen(a)
	case member.Shut:
		n.checks.outlive(a.Slots)
		n.checks.loaded = n.checks.loaded.Minus(a.Slots)
	case member.Release:
		n.Releases += a.Slots.Len()
		n.checks.loaded = n.checks.loaded.Minus(a.Slots)
	case member.Deadline:
		n.checks.checkDeadline(a)
	}
}

// expire is for the goroutine that steps the member: it looks at the deadline when nothing else is to be done.
func (n *Node) expire() {
	if n.busy {
		return
	}
	if !n.driver.Tick() {
		n.driver.Look()
	}
	n.run()
}

func (n *Node) notify(a member.Notify) {
	n.Notes = append(n.Notes, a.Reason)
	switch a.Reason {
	case "Lapsed":
		n.w.Counts.Lapses++
		n.w.Coverage.Rules[2]++
		n.checks.lapse = lapse{on: true}
	case "Resumed":
		n.w.Coverage.Rules[13]++
	case "TableInvalid":
		n.w.Coverage.Rules[4]++
	case "InvalidTable":
		n.w.violate("invalid table", "%s: %s", n.ID, a.Message)
	}
}

// stop ends an incarnation.
func (n *Node) stop(a member.Stop) {
	n.Stopped = &a
	n.runner.end()
	n.checks.checkStop(a)
	n.w.Counts.Stops++
	if wake := n.member.Wake(); wake < math.MaxInt64 {
		n.w.violate("ticks", "%s has ended and asks for a Tick at %v", n.ID, wake)
	}
	switch {
	case a.Err == nil && n.Leaving:
		n.w.Counts.Leaves++
		n.w.Coverage.Rules[9]++
	case a.Err != nil && strings.Contains(a.Err.Error(), "was put over it"):
		n.w.Coverage.Rules[16]++
	case a.Err != nil && strings.Contains(a.Err.Error(), "nothing was overwritten"):
		n.w.Coverage.Rules[4]++
	}
	if errors.Is(a.Err, member.ErrIdentity) {
		n.w.Counts.Namesakes++
	}
	// What is in flight goes on in the process until it sees that it was cancelled.
	n.Work.cancelled()
	n.Link.tables, n.Link.leases = &Feed{n: n}, nil
	n.wake++
	n.ended(0)
}

// ended ends the process, or starts the next incarnation in it, once nothing is in flight (rule R13).
func (n *Node) ended(waited time.Duration) {
	if n.Dead {
		return
	}
	if n.gate.InFlight()+len(n.keeper.Flights(0)) > 0 {
		n.w.after(50*time.Millisecond, func() { n.local(func() { n.ended(waited + 50*time.Millisecond) }) })
		return
	}
	n.end()
	if n.Stopped.Rejoin && !n.Leaving && !n.Replica.Gone {
		n.w.Counts.Rejoins++
		n.w.Coverage.Rules[13]++
		n.w.start(n.Replica, append(slices.Clone(n.cfg.Former), n.ID), n.state)
	} else if n.w.ended != nil {
		n.w.ended(n)
	}
}
