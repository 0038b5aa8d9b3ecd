package view

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// Works says whether a member works on an object.
type Works string

// Answers to whether a member works on an object.
const (
	WorksYes     Works = "yes"
	WorksNo      Works = "no"
	WorksUnknown Works = "unknown"
)

// Who says which member works on an object, and why. It is never changed once it was made. Its JSON is what
// `rota who -o json` prints: fields are added, but neither renamed nor removed.
type Who struct {
	// Answer says in a sentence who works on the object, or why nobody does.
	Answer string `json:"answer"`
	Works  Works  `json:"works"`
	// Kind is as "Website.web.example.com". Namespace is empty if the kind is cluster-scoped.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Exists says whether there is such an object; nil: it could not be read. Deleting is since when it is being deleted.
	Exists   *bool      `json:"exists,omitempty"`
	Deleting *time.Time `json:"deletingSince,omitempty"`
	// Rota is the rota's, as NAMESPACE/NAME.
	Rota string `json:"rota"`
	// Reasons say why nobody works on it, or why that is not known. The first one weighs most.
	Reasons []string `json:"reasons"`
	// By says what decides the slot: the name, namespace or UID of the object or of its controlling owner. Empty: nothing
	// does.
	By string `json:"shardedBy,omitempty"`
	// Owner is the controlling owner, if the kind is sharded by it.
	Owner string `json:"controllingOwner,omitempty"`
	// Slot is one of Slots. nil: the object has none.
	Slot  *int       `json:"slot,omitempty"`
	Slots slot.Count `json:"slots"`
	// SlotLoad is how many workers the objects of the slot keep busy, on average over some minutes. nil: not known.
	SlotLoad *float64 `json:"slotLoad,omitempty"`
	// Load is at least how many of them the object itself keeps busy; 0: it is not among the hottest of its member.
	Load float64 `json:"load,omitempty"`
	// Member owns the slot, and Pod is its Pod. It works on the object if Works is yes.
	Member string `json:"member,omitempty"`
	Pod    string `json:"pod,omitempty"`
	State  State  `json:"state,omitempty"`
	// Late is for how long Member has not renewed its Lease, in seconds, if it should have: it may be dead. nil: it is on
	// time, or the Lease is over (State).
	Late *float64 `json:"lateSeconds,omitempty"`
	// Since says since when Member has the slot, and why.
	Since *Since `json:"since,omitempty"`
	// Move is the move of the slot that is under way.
	Move *Move `json:"move,omitempty"`
	// Delivery is how the object comes to its member: "Filter", "SlotLabel" or "ShardSelector". Label is the label that
	// the object needs for it, LabelValue the value that it should have, and LabelHas the one that it has.
	Delivery   string `json:"delivery,omitempty"`
	Label      string `json:"label,omitempty"`
	LabelValue string `json:"labelValue,omitempty"`
	LabelHas   string `json:"labelHas,omitempty"`
	// Dispatched: Member hands the object's key out to workers.
	Dispatched bool `json:"dispatched,omitempty"`
	// Held says whether Member holds the object, by its report; nil: that cannot be told. Evidence says from what, or why
	// not.
	Held     *bool  `json:"held,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	// Health says that its reconcile hangs or fails, by Member's report; empty: it is not among the worst. There is one
	// for each controller.
	Health []KeyHealth `json:"health,omitempty"`
	// Notes are other things worth knowing.
	Notes []string `json:"notes"`
	// Problems and Warnings are those of the rota that are about the slot, its owner, or everything.
	Problems []Problem `json:"problems"`
	Warnings []Warning `json:"warnings"`
}

// Since says since when a member has a slot, and why.
type Since struct {
	// Epoch is the table's, Cause "assigned", "handed" or "expelled"; empty: the table and the member's report no longer
	// tell.
	Epoch uint64 `json:"epoch"`
	Cause string `json:"cause,omitempty"`
	// Reason is one of the Reasons. Text says it in words.
	Reason Reason `json:"reason,omitempty"`
	Text   string `json:"text"`
	// At is when the member began to work on the slot, by its own clock. From is the member that had it before.
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
	// Left: its owner left, or is about to; or it has gone since, and nobody remembers how.
	Left Reason = "Left"
	// WasDrained: somebody drained its owner.
	WasDrained Reason = "Drained"
	// Joined: the new owner had just joined, and got its share.
	Joined Reason = "Joined"
	// Rebalanced: it was handed over to even out the shares.
	Rebalanced Reason = "Rebalanced"
)
