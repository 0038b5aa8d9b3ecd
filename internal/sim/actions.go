package sim

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// Names of requests, for holds and counts.
const (
	CreateLease = "create lease"
	RenewLease  = "update lease"
	DeleteLease = "delete lease"
	ReadTable   = "get table"
	CreateTable = "create table"
	Swap        = "update table"
	Warm        = "warm"
	Load        = "load"
	Drain       = "drain"
)

// carryOut does what the member asks for.
func (n *Node) carryOut(action member.Action) {
	n.w.logf("%s → %v", n.ID, action)
	switch a := action.(type) {
	case member.CreateLease:
		n.renew(CreateLease, a.Lease, a.Timeout)
	case member.RenewLease:
		n.renew(RenewLease, a.Lease, a.Timeout)
	case member.ReadTable:
		begun := n.mono()
		n.send(request{
			name: ReadTable,
			effect: func(bool) member.Event {
				s := n.w.Objects.Table()
				if s.Missing() {
					s.Version = "" // as a 404 has none
				}
				return member.TableSeen{Snapshot: s, Consistent: true, Begun: begun}
			},
			fail: func(member.Outcome) member.Event { return member.ReadFailed{} },
		})
	case member.CreateTable:
		n.putTable(CreateTable, a.Serial, a.Table, a.Timeout, func(t *table.Table) (member.Snapshot, member.Outcome) {
			return n.w.Objects.CreateTable(t)
		})
	case member.Swap:
		n.putTable(Swap, a.Serial, a.Table, a.Timeout, func(t *table.Table) (member.Snapshot, member.Outcome) {
			return n.w.Objects.SwapTable(t, a.UID, a.Version)
		})
	case member.WatchLeases:
		if a.All && !n.planner && n.w.named[n.ID] > 0 {
			n.w.Counts.Planners++
		}
		n.planner = a.All
		n.followLeases(a)
	case member.DeleteLease:
		if a.ID != n.ID {
			n.w.Coverage.Rules[1]++
		}
		n.send(request{
			name: DeleteLease, timeout: a.Timeout,
			effect: func(bool) member.Event {
				was, _ := n.w.Objects.Lease(a.ID)
				outcome := n.w.Objects.DeleteLease(a.ID, a.UID, a.Version)
				if outcome == member.OutcomeDone && was.Version != a.Version {
					n.w.violate("deleted unseen", "%s deletes the Lease of %s, which was renewed since it was seen", n.ID, a.ID)
				}
				return member.LeaseDeleted{ID: a.ID, Outcome: outcome}
			},
			fail: func(o member.Outcome) member.Event { return member.LeaseDeleted{ID: a.ID, Outcome: o} },
		})
	case member.Hold:
		n.Holds += a.Slots.Len()
		hash, _ := n.w.split(a.Slots)
		n.work.held = n.work.held.Union(hash)
		if n.w.wild {
			n.informer.hold(hash)
		}
	case member.Warm:
		hash, duties := n.w.split(a.Slots)
		n.Warms += a.Slots.Len()
		n.work.held = n.work.held.Union(hash)
		if n.w.wild {
			warmed := func(set slot.Set) { n.post(member.Warmed{Slots: set, Round: a.Round}) }
			n.loadDuties(duties, warmed)
			n.informer.hold(hash)
			n.informer.settled(hash, warmed)
			return
		}
		n.store(Warm, func() { n.post(member.Warmed(a)) })
	case member.Load:
		n.checkLoad(a)
		if !a.Held {
			n.Loads += a.Slots.Len()
			n.w.Coverage.Rules[8]++
		}
		n.beginLoad(a)
		n.inherit(a)
		maps.Copy(n.duties.names, a.Duties)
		loaded := func(set slot.Set) {
			n.endLoad(set, a.Round)
			n.post(member.Loaded{Slots: set, Round: a.Round})
		}
		if n.w.wild {
			hash, duties := n.w.split(a.Slots)
			n.loadDuties(duties, loaded)
			if a.Slots = hash; !hash.Empty() {
				n.informer.load(a, loaded)
			}
			return
		}
		n.store(Load, func() { loaded(a.Slots) })
	case member.Drain:
		n.drain(a)
	case member.Open:
		for _, s := range a.Slots.Slots() {
			n.opened[s]++
		}
		n.open(a)
	case member.Shut:
		n.outlive(a.Slots)
		n.gate.Shut(a.Slots)
		n.duties.draining = n.duties.draining.Minus(a.Slots)
		if !n.w.handsOver() {
			n.forget(a.Slots)
		}
		n.cancelled()
	case member.Release:
		n.Releases += a.Slots.Len()
		if n.w.wild {
			hash, _ := n.w.split(a.Slots)
			n.informer.release(hash)
		}
		n.loaded = n.loaded.Minus(a.Slots)
		if n.w.handsOver() {
			n.forget(a.Slots)
		}
	case member.Deadline:
		n.checkDeadline(a)
		n.gate.SetDeadline(a.At)
		n.deadline = a.At
		n.cancelled()
		n.w.at(n.real(a.At), func() { n.local(n.expire) })
	case member.Notify:
		n.notify(a)
	case member.Stop:
		n.stop(a)
	}
}

// store is for scripts: an answer of stores that always have everything.
func (n *Node) store(name string, answer func()) {
	do := func() {
		n.w.after(quick, func() { n.local(answer) })
	}
	if waiting, ok := n.held[name]; ok {
		n.held[name] = append(waiting, do)
		return
	}
	do()
}

// expire is for the goroutine that steps the member: it looks at the deadline when nothing else is to be done.
func (n *Node) expire() {
	if n.busy || len(n.todo) > 0 {
		return
	}
	if n.w.paced {
		n.tellLapse()
		n.run()
		return
	}
	n.gate.Expire() // the member's Tick is due now, too
	n.cancelled()
}

// renew creates or renews the Lease as store.Kubernetes does: an edit of the Lease since is no conflict, but a renewal
// that is late never goes over a later one.
func (n *Node) renew(name string, l member.Lease, timeout time.Duration) {
	start := n.late()
	n.send(request{
		name: name, timeout: timeout,
		effect: func(late bool) member.Event {
			put := n.w.Objects.RenewLease
			switch {
			case name == CreateLease:
				put = n.w.Objects.CreateLease
			case late:
				put = n.w.Objects.PutLease
			}
			out, outcome := put(l)
			if name == CreateLease && late && outcome == member.OutcomeDone {
				n.w.ghosts[n.ID] = out.UID
			}
			return member.Renewed{Start: start, Outcome: outcome, Lease: out}
		},
		fail: func(o member.Outcome) member.Event { return member.Renewed{Start: start, Outcome: o} },
	})
}

func (n *Node) putTable(name string, serial uint64, t *table.Table, timeout time.Duration,
	put func(*table.Table) (member.Snapshot, member.Outcome),
) {
	if n.w.checkWritten(n, t) && (!n.w.wild || serial%4 == 0) {
		t, _ = table.Decode(table.Encode(t)) // what does not survive the text must not work here; to do so takes long
	}
	n.send(request{
		name: name, timeout: timeout,
		effect: func(bool) member.Event {
			s, outcome := put(t)
			n.w.writer = n
			n.w.Sync()
			n.w.writer = nil
			if outcome == member.OutcomeConflict {
				n.w.Counts.Conflicts++
				n.w.Coverage.Rules[3]++
			}
			return member.Swapped{Serial: serial, Outcome: outcome, Snapshot: s}
		},
		fail: func(o member.Outcome) member.Event { return member.Swapped{Serial: serial, Outcome: o} },
	})
}

func (n *Node) drain(a member.Drain) {
	held := false
	for _, s := range a.Slots.Slots() {
		if n.gate.InFlightIn(s) > 0 || n.pending(s) {
			n.w.Counts.HeldBack++
			held = true
			if n.pending(s) {
				n.w.Coverage.Rules[15]++
			}
		}
	}
	if held {
		n.w.logf("%s's drain is held back", n.ID)
	}
	n.work.left = n.work.left.Minus(a.Slots)
	do := func() {
		begun := n.w.now
		hash, duties := n.w.split(a.Slots)
		n.removeSome(hash)
		n.endDuties(duties)
		open := n.gate.OpenSet()
		n.gate.Drain(a.Slots, n.pending, func(s slot.Slot) {
			var gone []table.Gone
			if a.Room > 0 && n.w.handsOver() {
				gone = n.known(s)
				if n.w.opts.LeavesGone != nil {
					gone = n.w.opts.LeavesGone(s)
				}
			} else {
				defer n.abandon(s)
			}
			if open.Has(s) && n.pending(s) && !n.work.left.Has(s) {
				n.w.violate("deletion missed",
					"%s has drained slot %v, and knows of a deletion in it that is not reconciled", n.ID, s)
			}
			var set slot.Set
			set.Add(s)
			versions := table.Versions{"Website": strconv.FormatUint(n.w.slots[s].version+1, 10)}
			if n.w.wild && !n.w.isDuty(s) {
				versions = n.informer.known(s)
			}
			if n.w.opts.Leaves != nil {
				versions = n.w.opts.Leaves()
			}
			n.inbox = append(n.inbox, member.Drained{Slots: set, Round: a.Round, Versions: versions, Stale: n.Stale,
				Gone: gone})
		})
		n.hurryPending(a.Slots)
		n.run()
		if n.w.wild { // else a script says what happens
			n.review(a, begun)
		}
	}
	if waiting, ok := n.held[Drain]; ok {
		opened := maps.Clone(n.opened)
		n.held[Drain] = append(waiting, func() {
			for _, s := range a.Slots.Slots() {
				if n.opened[s] != opened[s] { // the gate has gone on, and would be shut by this
					a.Slots = a.Slots.Minus(slot.SetOf(slot.Range{First: s, Last: s}))
				}
			}
			do()
		})
		return
	}
	do()
}

// reviewPeriod is the time between two looks at drains, cutAfter is when a leaver cuts short what has been in flight
// for cutOlder.
const (
	reviewPeriod = 100 * time.Millisecond
	cutAfter     = 10 * time.Second
	cutOlder     = time.Second
)

// review looks after drains as production does, until they have ended.
func (n *Node) review(a member.Drain, begun time.Duration) {
	set := a.Slots
	n.w.after(reviewPeriod, func() {
		n.local(func() {
			if a.Room > 0 && n.w.handsOver() && n.w.now >= begun+leaveAfter {
				n.leaveGone(set)
			}
			if n.Leaving && n.mono() >= n.leavingSince+cutAfter {
				n.gate.Cut(set, cutOlder)
				n.cancelled()
			}
			parked, left := n.gate.Review(set)
			n.tryAll(parked)
			n.run()
			if left {
				n.review(a, begun)
			}
		})
	})
}

func (n *Node) notify(a member.Notify) {
	n.Notes = append(n.Notes, a.Reason)
	switch a.Reason {
	case "Lapsed":
		n.w.Counts.Lapses++
		n.w.Coverage.Rules[2]++
		n.lapse = lapse{on: true}
	case "Resumed":
		n.w.Coverage.Rules[13]++
	case "TableInvalid":
		n.w.Coverage.Rules[4]++
	case "InvalidTable":
		n.w.violate("invalid table", "%s: %s", n.ID, a.Message)
	}
}

func (n *Node) stop(a member.Stop) {
	n.Stopped = &a
	n.checkStop(a)
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
	n.cancelled()
	n.tables, n.leases, n.inbox, n.todo = &Feed{n: n}, nil, nil, nil
	n.wake++
	n.ended(0)
}

// ended ends the process, or starts the next incarnation in it, once nothing is in flight (rule R13).
func (n *Node) ended(waited time.Duration) {
	if n.Dead {
		return
	}
	if n.gate.InFlight() > 0 {
		n.w.after(50*time.Millisecond, func() { n.local(func() { n.ended(waited + 50*time.Millisecond) }) })
		return
	}
	n.end()
	if n.Stopped.Rejoin && !n.Leaving && !n.Replica.Gone {
		n.w.Counts.Rejoins++
		n.w.Coverage.Rules[13]++
		n.w.start(n.Replica, append(slices.Clone(n.cfg.Former), n.ID))
	} else if n.w.ended != nil {
		n.w.ended(n)
	}
}
