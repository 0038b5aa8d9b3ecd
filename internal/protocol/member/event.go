package member

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Time is the time of an event by the member's own clocks.
type Time struct {
	// Mono is monotonic, counted from any fixed point. It may stand still while the machine sleeps. It measures waits for
	// other members.
	Mono time.Duration
	// Ahead is how much more time may have passed because the machine slept. It never decreases.
	Ahead time.Duration
	// Wall is the wall clock in Unix seconds. New epochs start from it (rule R16), and joins and expels are dated with it
	// (rule R9). Safety does not depend on it.
	Wall int64
}

// Late is the latest time that it can be: Mono plus Ahead. It measures the member's own deadline.
func (t Time) Late() time.Duration { return t.Mono + t.Ahead }

// Event is an input of Step. The types are listed in this file.
type Event interface{ isEvent() }

// Snapshot is a version of the object that holds the table.
type Snapshot struct {
	// UID and Version are the object's metadata.uid and resourceVersion. If the object is missing, UID is empty, and
	// Version is the version at which it was missing, or empty if that is unknown.
	UID, Version string
	// Table is the table that the object holds, or nil. It must not be changed.
	Table *table.Table
	// Err is the reason why the object holds no valid table.
	Err error
}

// Missing reports whether there is no such object.
func (s Snapshot) Missing() bool { return s.UID == "" }

// adopted reports whether there is a table and it was made for this very object (rule R16).
func (s Snapshot) adopted() bool { return s.Table != nil && s.Table.UID == s.UID }

// Lease is a member's Lease as read from the store.
type Lease struct {
	// ID is the member's ID.
	ID string
	// UID and Version are the Lease's metadata.uid and resourceVersion.
	UID, Version string
	// Epoch is the highest table epoch that the member has seen. TableUID is the table's UID.
	Epoch    uint64
	TableUID string
	// Open is set if the member's gate may be open (rules R5 and R16).
	Open bool
	// Format is the newest table format that the member reads.
	Format int
	// LongestWrite is the longest time that a write of the member may take, if that is longer than WriteTimeout (rule R2).
	// Otherwise it is 0.
	LongestWrite time.Duration
	// Memory is the member's report of its memory (rule R23). The driver fills it in.
	Memory planner.MemoryReport
}

// Outcome is the result of a write.
type Outcome uint8

// Outcomes.
const (
	// OutcomeUnknown: the write may have happened or may still happen (client timeout, connection lost).
	OutcomeUnknown Outcome = iota
	// OutcomeDone: the write happened.
	OutcomeDone
	// OutcomeConflict: the write did not happen, since the precondition failed, or the object already exists or is gone.
	OutcomeConflict
	// OutcomeMissing: the write did not happen, since there is no such object.
	OutcomeMissing
	// OutcomeFailed: the write did not and will not happen, for another reason (throttled, forbidden, connection refused).
	OutcomeFailed
)

type (
	// Tick is due at Member.Wake.
	Tick struct{}

	// Renewed answers CreateLease and RenewLease.
	Renewed struct {
		// Start is when the request was sent, as Time.Late.
		Start   time.Duration
		Outcome Outcome
		// Lease is the renewed Lease. It is set with OutcomeDone.
		Lease Lease
	}

	// TableSeen reports a version of the table.
	TableSeen struct {
		Snapshot Snapshot
		// Consistent is set if the version comes from a GET without resourceVersion, sent at Begun (as Time.Mono). Otherwise
		// it comes from a watch, which may lag but skips no version.
		Consistent bool
		Begun      time.Duration
		// Listed is set if the watch started or restarted with this version, so earlier ones may not have been reported.
		Listed bool
	}

	// ReadFailed answers ReadTable if the read failed.
	ReadFailed struct{}

	// Swapped answers Swap and CreateTable.
	Swapped struct {
		// Serial is the action's Serial.
		Serial  uint64
		Outcome Outcome
		// Snapshot is the new version. It is set with OutcomeDone.
		Snapshot Snapshot
	}

	// LeasesSeen reports Leases from the watch that WatchLeases started.
	LeasesSeen struct {
		// Leases are new or changed. Gone are the IDs of deleted ones.
		Leases []Lease
		Gone   []string
		// Complete is set if Leases holds all the watched Leases that exist.
		Complete bool
		// Watch is the Serial of the WatchLeases that started the watch.
		Watch uint64
	}

	// LeaseDeleted answers DeleteLease.
	LeaseDeleted struct {
		ID      string
		Outcome Outcome
	}

	// Warmed reports that the stores hold the slots of the Warm with this Round.
	Warmed struct {
		Slots slot.Set
		Round uint64
	}

	// Drained answers Drain, in one or several parts. Nothing is in flight in these slots, or will be before the next
	// Open. The known deletions are reconciled, except those in Gone.
	Drained struct {
		Slots slot.Set
		Round uint64
		// Versions are the highest versions that were seen or written in the slots.
		Versions table.Versions
		// Stale is set if others may have written in the slots and Versions do not cover that. The next owner lists.
		Stale bool
		// Gone are deletions that the next owner has to reconcile. They fit in the Drain's Room.
		Gone []table.Gone
	}

	// Loaded answers Load: the stores are complete for these slots.
	Loaded struct {
		Slots slot.Set
		Round uint64
	}

	// LoadsSeen answers ReadLoads with the members' reports.
	LoadsSeen struct {
		// Serial is the action's Serial.
		Serial uint64
		// Reports are in any order. A member's report may be missing, outdated or wrong.
		Reports []planner.LoadReport
	}

	// Lapsed reports that the gate passed its deadline before the member noticed. Time passed between a Step and its
	// actions, so a Deadline or an Open came too late for slots that the member considers open (rule R13). It must precede
	// any other event.
	Lapsed struct{}

	// LongWrites reports that the process intends to send writes that may take longer than WriteTimeout. Until is a
	// Time.Mono (rule R2).
	LongWrites struct{ Until time.Duration }

	// ShortWrites answers AllowLong: no long write is in flight any more.
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
