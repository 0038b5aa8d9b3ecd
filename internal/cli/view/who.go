package view

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// Works is whether a member works on an object.
type Works string

// Values of Works.
const (
	WorksYes     Works = "yes"
	WorksNo      Works = "no"
	WorksUnknown Works = "unknown"
)

// Who is the member that works on an object, and why. It is immutable. Its JSON is the output of `rota who -o json`:
// fields are added, but never renamed or removed.
type Who struct {
	// Answer is a sentence: which member works on the object, or why none does.
	Answer string `json:"answer"`
	Works  Works  `json:"works"`
	// Kind is in the form "Website.web.example.com". Namespace is empty if the kind is cluster-scoped.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Exists is nil if the object could not be read. Deleting is its deletion timestamp.
	Exists   *bool      `json:"exists,omitempty"`
	Deleting *time.Time `json:"deletingSince,omitempty"`
	// Rota is NAMESPACE/NAME.
	Rota string `json:"rota"`
	// Reasons explain why no member works on it, or why the answer is unknown. The first is the most important.
	Reasons []string `json:"reasons"`
	// By is what determines the slot: the name, namespace or UID of the object or of its controlling owner. It is empty if
	// the object has no slot.
	By string `json:"shardedBy,omitempty"`
	// Owner is the controlling owner, if the kind is sharded by owner.
	Owner string `json:"controllingOwner,omitempty"`
	// Slot is the object's slot, or nil if it has none. Slots is the number of slots.
	Slot  *int       `json:"slot,omitempty"`
	Slots slot.Count `json:"slots"`
	// SlotLoad is how many workers the slot's objects keep busy, averaged over some minutes, or nil if unknown.
	SlotLoad *float64 `json:"slotLoad,omitempty"`
	// Load is a lower bound on how many workers the object keeps busy, or 0 if it is not among its member's hottest.
	Load float64 `json:"load,omitempty"`
	// Member owns the slot, and Pod is its Pod. It works on the object if Works is yes.
	Member string `json:"member,omitempty"`
	Pod    string `json:"pod,omitempty"`
	State  State  `json:"state,omitempty"`
	// Late is for how long Member has not renewed its Lease, in seconds, if a renewal is overdue: the member may be dead.
	// It is nil if the renewal is not overdue, or the Lease has expired (see State).
	Late *float64 `json:"lateSeconds,omitempty"`
	// Since is when and why Member got the slot.
	Since *Since `json:"since,omitempty"`
	// Move is the slot's current move.
	Move *Move `json:"move,omitempty"`
	// Delivery is how the member receives the object: "Filter", "SlotLabel" or "ShardSelector". Label is the label that it
	// needs for that, LabelValue the correct value, and LabelHas the actual value.
	Delivery   string `json:"delivery,omitempty"`
	Label      string `json:"label,omitempty"`
	LabelValue string `json:"labelValue,omitempty"`
	LabelHas   string `json:"labelHas,omitempty"`
	// Dispatched is true if Member hands out the object's key to workers.
	Dispatched bool `json:"dispatched,omitempty"`
	// Held is whether Member holds the object according to its report, or nil if unknown. Evidence explains the answer.
	Held     *bool  `json:"held,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	// Health is set if its reconciles hang or fail according to Member's report, with one entry per controller. It is
	// empty if the object is not among the worst.
	Health []KeyHealth `json:"health,omitempty"`
	// Notes are additional information.
	Notes []string `json:"notes"`
	// Problems and Warnings are the rota's problems and warnings that concern the slot, its owner, or everything.
	Problems []Problem `json:"problems"`
	Warnings []Warning `json:"warnings"`
}

// Since is when and why a member got a slot.
type Since struct {
	// Epoch is the table's. Cause is "assigned", "handed" or "expelled", or empty if neither the table nor the member's
	// report has it any more.
	Epoch uint64 `json:"epoch"`
	Cause string `json:"cause,omitempty"`
	// Reason is one of the Reasons. Text is its description.
	Reason Reason `json:"reason,omitempty"`
	Text   string `json:"text"`
	// At is when the member began to work on the slot, by its own clock. From is the former owner.
	At   *time.Time `json:"at,omitempty"`
	From string     `json:"from,omitempty"`
}

// Reason is why a slot came to its owner.
type Reason string

// Reasons.
const (
	// Assigned: it had no owner.
	Assigned Reason = "Assigned"
	// Expelled: its owner was expelled.
	Expelled Reason = "Expelled"
	// Left: its owner left or is leaving; or it is gone for an unknown reason.
	Left Reason = "Left"
	// WasDrained: its owner was drained.
	WasDrained Reason = "Drained"
	// Joined: the new owner had just joined, and got its share.
	Joined Reason = "Joined"
	// Rebalanced: it was handed over to rebalance.
	Rebalanced Reason = "Rebalanced"
)
