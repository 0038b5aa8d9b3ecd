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

// Class says how soon a key should be handed out.
type Class uint8

// Classes, the most urgent first.
const (
	// Changed is for objects of which an event told.
	Changed Class = iota
	// Recent is for objects of a slot that was opened, if they changed shortly before.
	Recent
	// Opened is for all other objects of a slot that was opened, and for resyncs.
	Opened

	classes = 3
)

// String returns the class in words.
func (c Class) String() string { return [...]string{"changed", "recent", "opened"}[min(c, classes-1)] }

// Change says that an object has to be worked on.
type Change struct {
	Key  Key
	Slot slot.Slot
	// UID and Version are the object's metadata.uid and resourceVersion, for the worker. They may be empty.
	UID, Version string
	Class        Class
	// Gone says that the object was deleted.
	Gone bool
	// Related says that something else has changed that concerns the object, such as a child. What is known of the object
	// itself stays: Version and Gone do not count, and UID only if nothing is known.
	Related bool
}

// Take is a key that a worker has.
type Take struct {
	// ID is unique in the life of the queue, and rises.
	ID           uint64
	Key          Key
	UID, Version string
	Gone         bool
	Slot         slot.Slot
	// Epoch is that of the slot: a fencing token. It rises with each owner.
	Epoch uint64
	// Attempt counts from 1. It is above 1 if takes of the key have failed or expired since one succeeded.
	Attempt int
	// Class is that of the change, and Since is when the key became ready.
	Class Class
	Since time.Duration
	// Worker is that of the Ask. Begun is when the take began, and Deadline when it ends by itself.
	Worker          string
	Begun, Deadline time.Duration
}

// entry is a key that waits, is ready, or is taken.
type entry struct {
	kind            *kind
	namespace, name string
	uid, version    string
	slot            slot.Slot
	class           Class
	gone            bool
	// pending says that the key has to be handed out. If it is taken, too, that is once the take has ended.
	pending  bool
	attempts int32
	// failure is about the failures since the last success; nil: there was none.
	failure *failure
	// since is when it became ready.
	since time.Duration
	// due is when it becomes ready. place is its place among the keys that wait; -1: it does not wait.
	due   time.Duration
	place int32
	// line is where it is ready; nil: it is not. next and prev are its neighbors there.
	line       *line
	next, prev *entry
	// nextIn and prevIn are its neighbors among the keys of its slot.
	nextIn, prevIn *entry
	// take is nil if nobody has it.
	take *taken
}

func (e *entry) key() Key { return Key{Kind: e.kind.name, Namespace: e.namespace, Name: e.name} }

func (e *entry) when() time.Duration { return e.due }
func (e *entry) put(place int)       { e.place = int32(place) } // a queue has fewer keys
func (e *entry) at() int             { return int(e.place) }

// taken is a take under way.
type taken struct {
	Take
	entry  *entry
	holder *worker // if it asked with Affine
	// place is its place among all takes by their deadlines.
	place int
}

func (t *taken) when() time.Duration { return t.Deadline }
func (t *taken) put(place int)       { t.place = place }
func (t *taken) at() int             { return t.place }
