package member

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Time is the time of an event, by the member's own clocks.
type Time struct {
	// Mono is monotonic, counted from any fixed point. It may stand still while the machine sleeps. Waits for others are
	// measured by it.
	Mono time.Duration
	// Ahead is how much more time may have passed because the machine slept. It never falls.
	Ahead time.Duration
	// Wall is the wall clock in Unix seconds. Epochs start from it (rule R16), and it dates joins and expels (rule R9).
	// Nothing that keeps two members apart depends on it.
	Wall int64
}

// Late is the latest time that it can be: Mono plus Ahead. The member's own deadline is measured by it.
func (t Time) Late() time.Duration { return t.Mono + t.Ahead }

// Event is something that happened. The types are listed in this file.
type Event interface{ isEvent() }

// Snapshot is a version of the object that holds the table.
type Snapshot struct {
	// UID and Version are the object's metadata.uid and resourceVersion. An empty UID says that the object is missing.
	// Version is then the version at which it was, or empty if that is not known.
	UID, Version string
	// Table is what the object holds, or nil. It is never changed.
	Table *table.Table
	// Err says why the object holds no valid table.
	Err error
}

// Missing says that there is no such object.
func (s Snapshot) Missing() bool { return s.UID == "" }

// adopted says that there is a table and that it was made for this very object (rule R16).
func (s Snapshot) adopted() bool { return s.Table != nil && s.Table.UID == s.UID }

// Lease is a member's Lease, as the store shows it.
type Lease struct {
	// ID is the member's ID.
	ID string
	// UID and Version are the Lease's metadata.uid and resourceVersion.
	UID, Version string
	// Epoch is the highest table epoch that the member has seen, TableUID the table's UID.
	Epoch    uint64
	TableUID string
	// Open says that the member's gate may be open (rules R5 and R16).
	Open bool
	// Format is the newest table format that the member reads.
	Format int
	// LongestWrite is how long a write that the member has sent may take at most, if that is longer than WriteTimeout;
	// otherwise 0 (rule R2).
	LongestWrite time.Duration
	// Memory is what the member reports of its memory (rule R23). The driver fills it in.
	Memory planner.MemoryReport
}

// Outcome says how a write ended.
type Outcome uint8

// Outcomes.
const (
	// OutcomeUnknown: the write may have happened, or may still happen (client timeout, connection lost).
	OutcomeUnknown Outcome = iota
	// OutcomeDone: it happened.
	OutcomeDone
	// OutcomeConflict: it did not happen, since the precondition failed, the object exists, or it is gone.
	OutcomeConflict
	// OutcomeMissing: it did not happen, since there is no such object.
	OutcomeMissing
	// OutcomeFailed: it did not and will not happen, for another reason (throttled, forbidden, refused connection).
	OutcomeFailed
)

type (
	// Tick says that time has passed. It is due when Member.Wake says.
	Tick struct{}

	// Renewed answers CreateLease and RenewLease.
	Renewed struct {
		// Start is when the request was sent, as Time.Late.
		Start   time.Duration
		Outcome Outcome
		// Lease is the renewed Lease. With OutcomeDone.
		Lease Lease
	}

	// TableSeen reports a version of the table.
	TableSeen struct {
		Snapshot Snapshot
		// Consistent says that it comes from a GET without resourceVersion, sent at Begun (as Time.Mono). Otherwise it comes
		// from a watch, which may lag, but leaves no version out.
		Consistent bool
		Begun      time.Duration
		// Listed says that the watch started or restarted with it: versions before it may never have been reported.
		Listed bool
	}

	// ReadFailed answers ReadTable if the read failed.
	ReadFailed struct{}

	// Swapped answers Swap and CreateTable.
	Swapped struct {
		// Serial is that of the action.
		Serial  uint64
		Outcome Outcome
		// Snapshot is the new version. With OutcomeDone.
		Snapshot Snapshot
	}

	// LeasesSeen reports Leases, from the watch asked for by WatchLeases.
	LeasesSeen struct {
		// Leases are new or changed. Gone are the IDs of deleted ones.
		Leases []Lease
		Gone   []string
		// Complete says that Leases has all the Leases that are watched. The others are missing.
		Complete bool
		// Watch is the Serial of the WatchLeases that this belongs to.
		Watch uint64
	}

	// LeaseDeleted answers DeleteLease.
	LeaseDeleted struct {
		ID      string
		Outcome Outcome
	}

	// Warmed says that the stores hold the slots of the Warm of that Round.
	Warmed struct {
		Slots slot.Set
		Round uint64
	}

	// Drained answers Drain, in one or several parts. Nothing is in flight in these slots, nor will be before the next
	// Open. The known deletions are reconciled, but for Gone.
	Drained struct {
		Slots slot.Set
		Round uint64
		// Versions are the highest seen or written in the slots.
		Versions table.Versions
		// Stale: others may have written in the slots, and Versions do not have that. The next owner lists.
		Stale bool
		// Gone are deletions in the slots that the next owner has to reconcile, within the Drain's Room.
		Gone []table.Gone
	}

	// Loaded answers Load: the stores are complete for these slots.
	Loaded struct {
		Slots slot.Set
		Round uint64
	}

	// LoadsSeen answers ReadLoads: what members report.
	LoadsSeen struct {
		// Serial is that of the action.
		Serial uint64
		// Reports are what members report, in any order. A member's may be missing, old or wrong.
		Reports []planner.LoadReport
	}

	// Lapsed says that the gate has passed its deadline and the member does not know. Time passed between a Step and its
	// actions, so a Deadline or an Open came too late for slots that the member takes for open (rule R13). It comes before
	// any other event.
	Lapsed struct{}

	// LongWrites says that the process means to send writes that may take longer than WriteTimeout, until a time by
	// Time.Mono (rule R2).
	LongWrites struct{ Until time.Duration }

	// ShortWrites says that no such write is under way any more. It answers AllowLong.
	ShortWrites struct{ Round uint64 }

	// Leave asks the member to leave (SIGTERM).
	Leave struct{}
)

func (Tick) isEvent()         {}
func (Renewed) isEvent()      {}
func (TableSeen) isEvent()    {}
func (ReadFailed) isEvent()   {}
func (Swapped) isEvent()      {}
func (LeasesSeen) isEvent()   {}
func (LeaseDeleted) isEvent() {}
func (Warmed) isEvent()       {}
func (Drained) isEvent()      {}
func (Loaded) isEvent()       {}
func (LoadsSeen) isEvent()    {}
func (Lapsed) isEvent()       {}
func (LongWrites) isEvent()   {}
func (ShortWrites) isEvent()  {}
func (Leave) isEvent()        {}
