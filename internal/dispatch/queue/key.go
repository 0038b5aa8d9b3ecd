package queue

import (
	"time"

	"github.com/rota-dev/rota/slot"
)

// Key names an object.
type Key struct {
	// Kind is "KIND.GROUP", or "KIND" in the core group.
	Kind            string
	Namespace, Name string
}

// String returns "KIND namespace/name".
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// Class is the urgency of a key.
type Class uint8

// Classes, most urgent first.
const (
	// Changed is for objects that changed, according to an event.
	Changed Class = iota
	// Recent is for objects of a newly opened slot that changed shortly before.
	Recent
	// Opened is for all other objects of a newly opened slot, and for resyncs.
	Opened

	classes = 3
)

// String returns the class as a word.
func (c Class) String() string { return [...]string{"changed", "recent", "opened"}[min(c, classes-1)] }

// Change is an object that has to be worked on.
type Change struct {
	Key  Key
	Slot slot.Slot
	// UID and Version are the object's metadata.uid and resourceVersion, for the worker. They may be empty.
	UID, Version string
	Class        Class
	// Gone is true if the object was deleted.
	Gone bool
	// Related is true if something related to the object has changed, such as a child. The object's known state stays:
	// Version and Gone are ignored, and UID is used only if none is known.
	Related bool
}

// Take is a key that a worker holds.
type Take struct {
	// ID is unique for the life of the queue, and rises.
	ID           uint64
	Key          Key
	UID, Version string
	Gone         bool
	Slot         slot.Slot
	// Epoch is the slot's epoch. It is a fencing token that rises with each owner.
	Epoch uint64
	// Attempt counts from 1. It is above 1 if takes of the key have failed or expired since the last success.
	Attempt int
	// Class is the class of the change. Since is when the key became ready.
	Class Class
	Since time.Duration
	// Worker is the worker of the Ask. Begun is when the take began, and Deadline when it expires.
	Worker          string
	Begun, Deadline time.Duration
}

// entry is a key that is waiting, ready or taken.
type entry struct {
	kind            *kind
	namespace, name string
	uid, version    string
	slot            slot.Slot
	class           Class
	gone            bool
	// pending is set if the key has to be handed out. If it is taken, that happens once the take has ended.
	pending  bool
	attempts int32
	// failure records the failures since the last success. It is nil if there were none.
	failure *failure
	// since is when it became ready.
	since time.Duration
	// due is when it becomes ready. place is its place among the waiting keys, or -1 if it is not waiting.
	due   time.Duration
	place int32
	// line is the line in which it is ready, or nil. next and prev are its neighbors there.
	line       *line
	next, prev *entry
	// nextIn and prevIn are its neighbors among the keys of its slot.
	nextIn, prevIn *entry
	// take is nil if no worker has the key.
	take *taken
}

func (e *entry) key() Key { return Key{Kind: e.kind.name, Namespace: e.namespace, Name: e.name} }

func (e *entry) when() time.Duration { return e.due }
func (e *entry) put(place int)       { e.place = int32(place) } // a queue has fewer keys
func (e *entry) at() int             { return int(e.place) }

// taken is a take in progress.
type taken struct {
	Take
	entry  *entry
	holder *worker // if it asked with Affine
	// place is its place among all takes, ordered by deadline.
	place int
}

func (t *taken) when() time.Duration { return t.Deadline }
func (t *taken) put(place int)       { t.place = place }
func (t *taken) at() int             { return t.place }
