package member

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Action is a request to the driver. The package comment defines the order of actions, and which of them take effect
// before the next Step.
type Action interface{ isAction() }

type (
	// CreateLease creates the member's Lease, once per incarnation. Answer: Renewed.
	CreateLease struct {
		Lease   Lease
		Timeout time.Duration
	}

	// RenewLease renews the member's Lease. It must fail if the Lease is missing or has another UID, and never create it.
	// Answer: Renewed.
	RenewLease struct {
		Lease   Lease
		Timeout time.Duration
	}

	// ReadTable gets the table without resourceVersion. Answer: TableSeen with Consistent, or ReadFailed.
	ReadTable struct{}

	// CreateTable creates the object that holds the table. The outcome is OutcomeConflict if it exists. Answer: Swapped.
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

	// WatchLeases replaces the current watch: it watches all Leases of the rota, or the Leases of the members in IDs. The
	// first answer is Complete. Answers: LeasesSeen.
	WatchLeases struct {
		Serial uint64
		All    bool
		IDs    []string
	}

	// DeleteLease deletes a Lease if it still has this UID and Version. The UID is empty if the Lease was never seen. Then
	// the outcome is OutcomeMissing if there is none, and OutcomeConflict if there is one. Answer: LeaseDeleted.
	DeleteLease struct {
		ID, UID, Version string
		Timeout          time.Duration
	}

	// Hold starts to list and follow the objects of the slots, with the gate shut and handlers silent. It has no answer. A
	// Load, Drain or Release follows.
	Hold struct{ Slots slot.Set }

	// Warm lists and follows the objects of the slots, with the gate shut and handlers silent. Answer: Warmed with the
	// same Round, which distinguishes it from answers to earlier requests for these slots.
	Warm struct {
		Slots slot.Set
		Round uint64
	}

	// Drain shuts the gate of the slots at a moment when reconciles in flight are expected to end soon, and waits for them
	// to end. Answer: Drained with the same Round, unless a later Open or Shut names the slots.
	Drain struct {
		Slots slot.Set
		Round uint64
		// Room is how many bytes of names of deleted objects (table.GoneSize) a slot may leave to its next owner, instead of
		// waiting until their deletions are reconciled. It is 0 if the slots get no next owner, or if some member cannot read
		// the names.
		Room int
	}

	// Load completes the stores for the slots. With CauseHanded the stores reach the given versions. With another cause
	// they must show everything that was written before now: slots that are not listed yet are listed, and the others
	// reach a version that is read after this action. If Held is set, they are complete already. Answer: Loaded with the
	// same Round.
	Load struct {
		Slots    slot.Set
		Round    uint64
		Cause    table.Cause
		Versions table.Versions
		// Gone are deletions that this member must reconcile once the slots are open, or hand on.
		Gone []table.Gone
		// Held is set if this member has owned the slots without a gap, so its stores still follow them.
		Held bool
		// Duties are the names of the duties in these slots, by slot. A duty has its slot until the slot's Shut.
		Duties map[slot.Slot]string
	}

	// Open opens the gate of the slots and enqueues each of their objects once.
	Open struct {
		Slots slot.Set
		Epoch uint64
	}

	// Shut shuts the gate of the slots at once and cancels reconciles in flight.
	Shut struct{ Slots slot.Set }

	// Release drops the objects of the slots from the stores, without calling handlers.
	Release struct{ Slots slot.Set }

	// Deadline moves the deadline of the whole gate (rule R2), as Time.Late. The gate admits nothing from At on.
	Deadline struct{ At time.Duration }

	// AllowLong allows or forbids writes that take longer than WriteTimeout. They may last until Config.LongestWrite after
	// the start of the last successful renewal (rule R2). When it is withdrawn, ShortWrites with the same Round answers
	// once no such write is in flight.
	AllowLong struct {
		Allowed bool
		Round   uint64
	}

	// ReadLoads reads the members' reports of loads and of a canary. Answer: LoadsSeen with the same Serial, without
	// reports if the read failed.
	ReadLoads struct{ Serial uint64 }

	// Notify is a message to people: a line in the log, and an event on the rota's ConfigMap.
	Notify struct {
		// Reason is one word in CamelCase, like the reason of a Kubernetes event.
		Reason  string
		Message string
		Warning bool
	}

	// Stop ends the incarnation. It is the last action.
	Stop struct {
		// Err is nil after a graceful leave.
		Err error
		// Rejoin is set if a new incarnation may replace this one once nothing of this one is in flight (rule R13).
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
