package member

import (
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// Action is something to do. The caller carries out the actions of one Step in order. Those on the gate (Open, Shut,
// Deadline) take effect before Step is called again; where the deadline passed meanwhile, so that the gate has lapsed
// (gate.Gate.Expire), the next event is Lapsed. The others run on their own and are answered by the event that each
// names.
type Action interface{ isAction() }

type (
	// CreateLease creates the member's Lease, once in its life. Answer: Renewed.
	CreateLease struct {
		Lease   Lease
		Timeout time.Duration
	}

	// RenewLease renews the member's Lease; it must fail where the Lease is missing or was written by another (its UID
	// differs), and is never turned into a create. Answer: Renewed.
	RenewLease struct {
		Lease   Lease
		Timeout time.Duration
	}

	// ReadTable gets the table without resourceVersion. Answer: TableSeen with Consistent, or ReadFailed.
	ReadTable struct{}

	// CreateTable creates the object that holds the table; OutcomeConflict where it exists. Answer: Swapped.
	CreateTable struct {
		Serial  uint64
		Table   *table.Table
		Timeout time.Duration
	}

	// Swap replaces the table on condition that the object still has this UID and Version. Answer: Swapped.
	Swap struct {
		Serial       uint64
		Table        *table.Table
		UID, Version string
		Timeout      time.Duration
	}

	// WatchLeases replaces what is watched: all Leases of the rota, or those of IDs. The first answer is Complete.
	// Answers: LeasesSeen.
	WatchLeases struct {
		Serial uint64
		All    bool
		IDs    []string
	}

	// DeleteLease deletes a Lease on condition of its UID and Version. With an empty UID the Lease was never seen: the
	// answer is OutcomeMissing where there is none, OutcomeConflict where there is one. Answer: LeaseDeleted.
	DeleteLease struct {
		ID, UID, Version string
		Timeout          time.Duration
	}

	// Hold begins to list and follow the objects of the slots, gate shut and handlers silent. No answer: a Load follows,
	// or a Drain, or a Release.
	Hold struct{ Slots slot.Set }

	// Warm lists and follows the objects of the slots, gate shut and handlers silent. Answer: Warmed, of the same Round,
	// which tells it from the answers to earlier requests for the same slots.
	Warm struct {
		Slots slot.Set
		Round uint64
	}

	// Drain shuts the gate of the slots, at a moment at which nothing in flight takes long, and waits for what is. Answer:
	// Drained, of the same Round; none after a later Open or Shut of the slots.
	Drain struct {
		Slots slot.Set
		Round uint64
		// Room is how many bytes of names of objects that are gone (table.GoneSize) a slot may hand over, instead of waiting
		// for their deletions to be reconciled. 0: none, since nobody takes the slots, or not every member can read them.
		Room int
	}

	// Load makes the stores complete for the slots. Where the cause is CauseHanded they reach the versions. Otherwise they
	// show all that was written before now: slots that are not listed yet are listed, those that are reach a version that
	// is read from now on. Where Held, they do already. Answer: Loaded, of the same Round.
	Load struct {
		Slots    slot.Set
		Round    uint64
		Cause    table.Cause
		Versions table.Versions
		// Gone are deletions that this member has to reconcile once the slots are open, or else to hand on.
		Gone []table.Gone
		// Held says that this member has owned the slots all along, so that its stores are as good as ever.
		Held bool
	}

	// Open opens the gate of the slots and enqueues every object of them once.
	Open struct {
		Slots slot.Set
		Epoch uint64
	}

	// Shut shuts the gate of the slots at once and cancels what is in flight in them.
	Shut struct{ Slots slot.Set }

	// Release drops the objects of the slots from the stores, silently.
	Release struct{ Slots slot.Set }

	// Deadline moves the deadline of the whole gate (rule R2): nothing is admitted from At on, as Time.Late.
	Deadline struct{ At time.Duration }

	// Notify is for people: a line for the log and an event on the rota's ConfigMap.
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
		// Rejoin says that a new incarnation may take its place once nothing of this one is in flight (rule R13).
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
func (Notify) isAction()      {}
func (Stop) isAction()        {}
