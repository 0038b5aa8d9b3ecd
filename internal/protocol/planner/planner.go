// Package planner decides how the table changes. [Propose] is a pure function: it takes what one member sees, and
// returns the next table, if one must be written now, and when to look again. Any member proposes: what concerns its
// own slots always, and what concerns others if it is one of the planners (rule R3). Package member looks, writes and
// keeps the Memory. The rules that comments cite by number are in docs/protocol.md.
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

// Config is the part of a member's configuration that concerns the table. Its fields are described in member.Config.
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

// View is what a member sees when it proposes.
type View struct {
	*Config
	Local
	// Now is the monotonic clock. Wall is the wall clock in Unix seconds.
	Now  time.Duration
	Wall int64
	// Table is the table that the member goes by, at that Version. It is never changed.
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
	// Memory is what the last proposal left.
	Memory
}

// Phase is where the member is in its life.
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
	// Dead is true if the member holds another one dead (rule R1).
	Dead(id string) bool
	// Renewing is true if the other one was lately seen to renew (rule R6), and OnTime if it misses no renewal.
	Renewing(id string) bool
	OnTime(id string) bool
	// Seen is true once the watch has shown the other one's Lease, or that it is missing. Alive is true if it was seen to
	// renew since.
	Seen(id string) bool
	Alive(id string) bool
	// WritesEnd is how long from now a write of the other one may still be under way if its Lease announces long ones,
	// otherwise 0 (rules R2 and R7).
	WritesEnd(id string) time.Duration
	// TooOld returns a process that wants to join and does not read a format of the table, or "".
	TooOld(format int) (id string)
	// MemoryOf returns what a member last reported of its memory; the zero value: nothing.
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
	// Versions, Cause and Gone are what a drain left to the next owner.
	Versions table.Versions
	Cause    table.Cause
	Gone     []table.Gone
}

// State is how far a slot is on its way to or from a member.
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

// Memory is what a member has to remember between two proposals. It is a value: what it refers to is never changed.
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

// Proposal is what a member does next.
type Proposal struct {
	// Table is the table to write now, or nil. It differs from View.Table.
	Table *table.Table
	// Transfers are the slots of this member that Table gives to their next owners.
	Transfers slot.Set
	// Err says why a change that is due cannot be written: the result would be invalid.
	Err error
	// Namesake is the ID of a live member with this member's identity, or "". This member must end.
	Namesake string
	// Again is when to propose again, even if nothing else happens.
	Again time.Duration
	// Reads are the serials under which to read the members' reports.
	Reads   []uint64
	Notices []Notice
	Memory  Memory
}

// Notice is for people: a line in the log, and an event.
type Notice struct {
	// Reason is one word in CamelCase, as of a Kubernetes event.
	Reason  string
	Message string
	Warning bool
}

// never is a time that never comes.
const never = time.Duration(math.MaxInt64)

// proposer makes one proposal. Its Memory begins as the view's, and is updated on the way.
type proposer struct {
	View
	out Proposal
}

func newProposer(v View) *proposer { return &proposer{View: v, out: Proposal{Again: never}} }

// Propose returns what the member does to the table next, if anything.
func Propose(v View) Proposal {
	p := newProposer(v)
	p.lookAtLoads()
	p.lookAtCanary()
	p.lookAtPins()
	p.lookAtRoom()
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

// read asks for the members' reports, under the serial that it returns.
func (p *proposer) read() uint64 {
	p.Serial++
	p.out.Reads = append(p.out.Reads, p.Serial)
	return p.Serial
}

func (p *proposer) notice(reason string, warning bool, format string, args ...any) {
	p.out.Notices = append(p.out.Notices, Notice{Reason: reason, Warning: warning, Message: fmt.Sprintf(format, args...)})
}

// clockDistance is how many seconds a time that another member wrote is away from now, before or after. The other clock
// may be wrong. So a time that lies ahead expires like one that lies behind, and a wrong clock makes nothing last
// longer.
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
