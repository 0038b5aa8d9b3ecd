package stream

import (
	"fmt"

	"github.com/rota-dev/rota/slot"
)

// Type is what happened to an object.
type Type uint8

const (
	// TypeUnknown is no event.
	TypeUnknown Type = iota
	// Added is the same to a stream as Modified: the object is in that state.
	Added
	// Modified is the same as Added.
	Modified
	// Deleted says that the object is gone or, in a stream that selects (Config.Selects), not selected any more. The
	// event shows the state before that, at the version of the change.
	Deleted
)

// String returns the type's name in watch events.
func (t Type) String() string { return [...]string{"UNKNOWN", "ADDED", "MODIFIED", "DELETED"}[t] }

// Name is an object's namespace, or "", and its name.
type Name struct{ Namespace, Name string }

// String returns the name as a key of a store.
func (n Name) String() string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "/" + n.Name
}

// Object is an object in one state.
type Object struct {
	Name Name
	// UID distinguishes it from its namesakes.
	UID string
	// Version is the state's resourceVersion.
	Version string
	// Slot is where it lies, if In: objects of owned kinds whose owner is of no kind that counts lie nowhere.
	Slot slot.Slot
	In   bool
	// Right is true if its slot's selector selects it. Otherwise the watch may not show what happens to it.
	Right bool
	// Body is the object itself. The stream does not look into it.
	Body any
}

// String returns the object without its body.
func (o Object) String() string {
	in := "nowhere"
	if o.In {
		in = "in " + o.Slot.String()
	}
	return fmt.Sprintf("%s (%s) %s at %s", o.Name, o.UID, in, o.Version)
}

// Event is a watch event.
type Event struct {
	Type   Type
	Object Object
}

// Action is what the store gets.
type Action uint8

const (
	// ActionUnknown is none.
	ActionUnknown Action = iota
	// Put is for the object as it is, as an event of Type.
	Put
	// Remove is for an object that was deleted.
	Remove
	// Leave is for an object that left the slot where the store has it for another, and may have been deleted there. The
	// store gets it as it is now, and then loses it: both owners hear of it.
	Leave
)

// Out is what the store gets.
type Out struct {
	Action Action
	Type   Type // of a Put
	Object Object
	// Kept is true if the stream keeps the body, so the store gets a copy.
	Kept bool
	// At is the version of a Remove or Leave where it differs from the object's, or else "".
	At string
}

// String returns the action and the object.
func (o Out) String() string {
	name := [...]string{"unknown", "put", "remove", "leave"}[o.Action]
	if o.At != "" {
		return name + " " + o.Object.String() + " by " + o.At
	}
	return name + " " + o.Object.String()
}
