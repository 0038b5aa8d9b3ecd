// Package planner decides how the table changes. [Propose] is a pure function: it takes a member's view, and returns
// the next table, if one must be written now, and when to call it again. Every member proposes changes for its own
// slots. Planners also propose changes for others (rule R3). Package member collects the view, writes the table and
// keeps the Memory. The numbered rules that comments cite are in docs/protocol.md.
package planner

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Config is the part of a member's configuration that planners use. Its fields are described in member.Config.
type Config struct {
	Self                                           table.Member
	Former                                         []string
	LeaseDuration, RetryPeriod, LoadPeriod         time.Duration
	Coalesce, SettleDelay, JoinDelay, RolloutDelay time.Duration
	MaxTable                                       int
	Outlives, ByLoad                               bool
}

// GoneRoom is how many bytes the names of deleted objects may take in a table.
func (c *Config) GoneRoom() int { return c.MaxTable / 8 }

// View is the input of Propose.
type View struct {
	*Config
	Local
	// Now is the monotonic clock. Wall is the wall clock in Unix seconds.
	Now  time.Duration
	Wall int64
	// Table is the table that the member uses, at that Version. It must not be changed.
	Table   *table.Table
	Version string
	Phase   Phase
	// Rank is the member's rank among the planners, or -1 if it is not one of them.
	Rank int
	// Expelled are members whose Lease was deleted (rule R7). They are dead.
	Expelled map[string]bool
	// Complete is true if the member watches all Leases and has seen each of them.
	Complete bool
	// Busy is true while the member must not write.
	Busy bool
	// InDoubt is true while an earlier swap on this Version may still happen. Sending is true while a transfer of the
	// member's slots may.
	InDoubt, Sending bool
	// Serial is the last serial that the member has used.
	Serial uint64
	// Memory is the Memory of the last proposal.
	Memory
}

// Phase is a stage in the life of a member.
type Phase uint8

// Phases. In phase Absent a member proposes nothing.
const (
	Absent Phase = iota
	Joining
	Joined
	Leaving
)

// Local answers questions about other members' Leases and about the member's own slots.
type Local interface {
	// Dead reports whether the member holds another one dead (rule R1).
	Dead(id string) bool
	// Renewing reports whether the other member was lately seen to renew (rule R6), and OnTime whether it misses no
	// renewal.
	Renewing(id string) bool
	OnTime(id string) bool
	// Seen reports whether the watch has shown the other member's Lease, or that it is missing. Alive reports whether the
	// member was seen to renew after that.
	Seen(id string) bool
	Alive(id string) bool
	// WritesEnd returns how long from now a long write of the other member may still be in flight, or 0 if its Lease
	// announces no long writes (rules R2 and R7).
	WritesEnd(id string) time.Duration
	// TooOld returns the ID of a process that wants to join but cannot read the given table format, or "" if none.
	TooOld(format int) (id string)
	// MemoryOf returns the member's last report of its memory, or the zero value if there is none.
	MemoryOf(id string) MemoryReport
	// Slot returns the state of a slot in this member.
	Slot(s slot.Slot) Slot
}

// Slot is the state of a slot in a member.
type Slot struct {
	State State
	Epoch uint64
	// Loaded is true if the stores have been complete for the slot since that epoch.
	Loaded bool
	// Versions, Cause and Gone are the results of a drain for the next owner.
	Versions table.Versions
	Cause    table.Cause
	Gone     []table.Gone
}

// State is the state of a slot in this member, as in package member.
type State uint8

// States. A slot in the state Sent is drained, and its transfer was sent.
const (
	Elsewhere State = iota
	Warming
	Warm
	Open
	Draining
	Drained
	Sent
)

// Memory is a member's state between two proposals. It is a value. Nothing that it refers to may be changed.
type Memory struct {
	delays   delays
	planning planning
	loads    loads
	canary   canaryView
	pins     unmetPins
	room     room
	// met is true once a namesake has been reported.
	met bool
}

// delays are since when each kind of change has been waiting to be written, or 0.
type delays struct{ ready, transfer, settle, abort, announce, label time.Duration }

// Proposal is the result of Propose.
type Proposal struct {
	// Table is the table to write now, or nil. It differs from View.Table.
	Table *table.Table
	// Transfers are the slots of this member that Table gives to their next owners.
	Transfers slot.Set
	// Err is the reason why a change that is due cannot be written: the result would be invalid.
	Err error
	// Namesake is the ID of a live member with this member's identity, or "". If there is one, this member must end.
	Namesake string
	// Again is when to propose again, even if nothing else happens.
	Again time.Duration
	// Reads are the serials under which to read the members' reports.
	Reads   []uint64
	Notices []Notice
	Memory  Memory
}

// Notice is a message to people: a line in the log, and an event.
type Notice struct {
	// Reason is one word in CamelCase, like the reason of a Kubernetes event.
	Reason  string
	Message string
	Warning bool
}

// never is a time that never comes.
const never = time.Duration(math.MaxInt64)

// proposer makes one proposal. Its Memory starts as the view's and is updated on the way.
type proposer struct {
	View
	out Proposal
}

func newProposer(v View) *proposer { return &proposer{View: v, out: Proposal{Again: never}} }

// Propose returns the member's next change of the table, if any.
func Propose(v View) Proposal {
	p := newProposer(v)
	p.checkLoads()
	p.checkCanary()
	p.checkPins()
	p.trackRoom()
	if p.Busy || p.Phase == Absent {
		return p.proposal()
	}
	if d := p.fitting(); d != nil {
		p.out.Table, p.out.Transfers = d.next, d.transfers
		p.noticeExpels(d.next)
		p.noticeOrders(d.next)
		p.noticeCanary(d.next)
	}
	return p.proposal()
}

func (p *proposer) proposal() Proposal {
	p.out.Memory = p.Memory
	return p.out
}

// read requests the members' reports, under the serial that it returns.
func (p *proposer) read() uint64 {
	p.Serial++
	p.out.Reads = append(p.out.Reads, p.Serial)
	return p.Serial
}

func (p *proposer) notice(reason string, warning bool, format string, args ...any) {
	p.out.Notices = append(p.out.Notices, Notice{Reason: reason, Warning: warning, Message: fmt.Sprintf(format, args...)})
}

// clockDistance is how many seconds a time that another member wrote is before or after now. The other clock may be
// wrong. So a time in the future expires like one in the past, and a wrong clock makes nothing last longer.
func clockDistance(now, wall int64) int64 { return max(now-wall, wall-now) }

func (p *proposer) clockDistance(wall int64) int64 { return clockDistance(p.Wall, wall) }

// eachSlot visits the slots of the wanted runs.
func eachSlot(t *table.Table, wanted func(table.Run) bool, visit func(slot.Slot, table.Run)) {
	for _, r := range t.Runs {
		if !wanted(r) {
			continue
		}
		for s := r.Slots.First; ; s++ {
			visit(s, r)
			if s == r.Slots.Last {
				break
			}
		}
	}
}

// add adds a slot to the set with this key.
func add(sets map[string]*slot.Set, key string, s slot.Slot) {
	if sets[key] == nil {
		sets[key] = &slot.Set{}
	}
	sets[key].Add(s)
}

func sortedKeys[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }
