package member

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Action is something to do. The package comment says in which order, and which actions take effect before the next
// Step.
type Action interface{ isAction() }

type (
	// CreateLease creates the member's Lease, once in its life. Answer: Renewed.
	CreateLease struct {
		Lease   Lease
		Timeout time.Duration
	}

	// RenewLease renews the member's Lease. It must fail if the Lease is missing or has another UID. It never creates a
	// Lease. Answer: Renewed.
	RenewLease struct {
		Lease   Lease
		Timeout time.Duration
	}

	// ReadTable gets the table without resourceVersion. Answer: TableSeen with Consistent, or ReadFailed.
	ReadTable struct{}

	// CreateTable creates the object that holds the table. If it exists: OutcomeConflict. Answer: Swapped.
	CreateTable struct {
		Serial  uint64
		Table   *table.Table
		Timeout time.Duration
	}

	// Swap replaces the table if the object still has this UID and Version. Answer: Swapped.
	Swap struct {
		Serial       uint64
		Table        *table.Table
		UID, Version string
		Timeout      time.Duration
	}

	// WatchLeases watches all Leases of the rota, or those of IDs, in place of what was watched before. The first answer
	// is Complete. Answers: LeasesSeen.
	WatchLeases struct {
		Serial uint64
		All    bool
		IDs    []string
	}

	// DeleteLease deletes a Lease if it still has this UID and Version. An empty UID says that the Lease was never seen:
	// the outcome is OutcomeMissing if there is none, and OutcomeConflict if there is one. Answer: LeaseDeleted.
	DeleteLease struct {
		ID, UID, Version string
		Timeout          time.Duration
	}

	// Hold begins to list and follow the objects of the slots, with the gate shut and handlers silent. It has no answer. A
	// Load, Drain or Release follows.
	Hold struct{ Slots slot.Set }

	// Warm lists and follows the objects of the slots, with the gate shut and handlers silent. Answer: Warmed of the same
	// Round, which tells it from answers to earlier requests for the same slots.
	Warm struct {
		Slots slot.Set
		Round uint64
	}

	// Drain shuts the gate of the slots at a moment at which nothing in flight takes long, and waits for what is in
	// flight. Answer: Drained of the same Round, unless a later Open or Shut names the slots.
	Drain struct {
		Slots slot.Set
		Round uint64
		// Room is how many bytes of names of deleted objects (table.GoneSize) a slot may leave to its next owner, instead of
		// waiting until their deletions are reconciled. 0: nobody takes the slots, or not every member can read the names.
		Room int
	}

	// Load makes the stores complete for the slots. With CauseHanded the stores reach the versions. With another cause
	// they show all that was written before now: slots that are not listed yet are listed, and the others reach a version
	// that is read from now on. If Held, they are complete already. Answer: Loaded of the same Round.
	Load struct {
		Slots    slot.Set
		Round    uint64
		Cause    table.Cause
		Versions table.Versions
		// Gone are deletions that this member has to reconcile once the slots are open, or to hand on.
		Gone []table.Gone
		// Held says that this member has owned the slots all along, so its stores still follow them.
		Held bool
		// Duties are the names of the duties whose slots are among these. A duty has the slot until its Shut.
		Duties map[slot.Slot]string
	}

	// Open opens the gate of the slots and enqueues every object of them once.
	Open struct {
		Slots slot.Set
		Epoch uint64
	}

	// Shut shuts the gate of the slots at once and cancels what is in flight in them.
	Shut struct{ Slots slot.Set }

	// Release drops the objects of the slots from the stores, without telling handlers.
	Release struct{ Slots slot.Set }

	// Deadline moves the deadline of the whole gate (rule R2): nothing is admitted from At on, as Time.Late.
	Deadline struct{ At time.Duration }

	// AllowLong says whether writes may take longer than WriteTimeout: until Config.LongestWrite after the start of the
	// last successful renewal (rule R2). Answer to one that withdraws this, once no such write is under way: ShortWrites
	// of the same Round.
	AllowLong struct {
		Allowed bool
		Round   uint64
	}

	// ReadLoads reads the members' reports of loads and of a canary. Answer: LoadsSeen of the same Serial, without reports
	// if it failed.
	ReadLoads struct{ Serial uint64 }

	// Notify is for people: a line in the log, and an event on the rota's ConfigMap.
	Notify struct {
		// Reason is one word in CamelCase, as of a Kubernetes event.
		Reason  string
		Message string
		Warning bool
	}

	// Stop ends the incarnation: nothing follows.
	Stop struct {
		// Err is nil after a graceful leave.
		Err error
		// Rejoin says that a new incarnation may replace this one once nothing of it is in flight (rule R13).
		Rejoin bool
	}
)

func (CreateLease) isAction() {}
func (RenewLease) isAction()  {}
func (ReadTable) isAction()   {}
func (CreateTable) isAction() {}
func (Swap) isAction()        {}
func (WatchLeases) isAction() {}
func (DeleteLease) isAction() {}
func (Hold) isAction()        {}
func (Warm) isAction()        {}
func (Drain) isAction()       {}
func (Load) isAction()        {}
func (Open) isAction()        {}
func (Shut) isAction()        {}
func (Release) isAction()     {}
func (Deadline) isAction()    {}
func (AllowLong) isAction()   {}
func (ReadLoads) isAction()   {}
func (Notify) isAction()      {}
func (Stop) isAction()        {}
