package stream

import (
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/resourceversion"
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

// Config describes the kind whose objects a stream brings.
type Config struct {
	// Slots is the number of slots, including the orphans' slot.
	Slots int
	// Moves is true if objects can change slots, as when an object lies in its owner's slot.
	Moves bool
	// Namesakes is true if successive objects of one name may lie in different slots.
	Namesakes bool
	// Selects is true if the API server only sends the objects that a selector selects. DELETED may mean that an object
	// left the selector, and a list that does not show an object does not prove that it is gone.
	Selects bool
}

// Stream is the state of a stream, from the API server's watch and lists to a store. Its methods must not be called
// concurrently.
//
// For every slot, got is the ticket of the list that brought it into the stream, or 0 if the stream does not carry the
// slot. ready is set to got once the store holds the slot. The ticket of a list is the number of the latest request for
// a fresh one (Renew) when the list began.
type Stream struct {
	cfg Config

	// lists counts those that replaced the whole store.
	lists uint64
	// position is the version up to which events have been handled; listed is the version of the latest list.
	position, listed string

	ticket           uint64
	got, ready, want []uint64 // want is the ticket that ready must reach
	// first are the slots that the store has held since its first list: nothing false was ever sent about them.
	first slot.Set
	// warming slots are being listed. buffer are the events that the list may undo, or that wait for it.
	warming slot.Set
	buffer  []Event
	// replayed are the slots of a list, and its version, while those events are sent again.
	replayed  slot.Set
	replaying string
	// floors are the versions of the slots' lists: events of a slot up to its floor are older than the list. nil once
	// position has passed them all.
	floors   []string
	floorMax string
	// saw is the highest version sent to the store, by slot.
	saw []string
	// since is the version of the list that brought a slot, until TakeSince; nil before the first.
	since []string

	ledger
	// observing is true while every object that is sent is noted, since a list under way may show namesakes.
	observing bool
}

// New returns a stream that carries nothing.
func New(cfg Config) *Stream {
	return &Stream{
		cfg: cfg, ledger: newLedger(), ticket: 1,
		got: make([]uint64, cfg.Slots), ready: make([]uint64, cfg.Slots), want: make([]uint64, cfg.Slots),
		saw: make([]string, cfg.Slots),
	}
}

func compare(a, b string) int { return resourceversion.Compare(a, b) }

func later(a, b string) string {
	if compare(a, b) < 0 {
		return b
	}
	return a
}

// Position is the version up to which the store shows everything, except for pending doubts.
func (s *Stream) Position() string { return s.position }

// Behind reports whether some slots were listed at a later version than the position.
func (s *Stream) Behind() bool { return s.floors != nil }

// Listed is the version of the latest list.
func (s *Stream) Listed() string { return s.listed }

// Saw notes that the store gets an object of a slot at a version.
func (s *Stream) Saw(n slot.Slot, version string) { s.saw[n] = later(s.saw[n], version) }

// Highest returns the highest version that the store got in the slots.
func (s *Stream) Highest(slots []slot.Slot) string {
	top := ""
	for _, n := range slots {
		top = later(top, s.saw[n])
	}
	return top
}

// Advance moves the position, and reports whether it moved.
func (s *Stream) Advance(version string) bool {
	if version == "" || compare(version, s.position) <= 0 {
		return false
	}
	s.position = version
	s.passFloors()
	s.caughtUp()
	return true
}

// passFloors drops the floors once the position has passed them all. While slots are listed, events wait that are older
// than the position, and are sent again.
func (s *Stream) passFloors() {
	if s.floors != nil && s.warming.Empty() && compare(s.position, s.floorMax) >= 0 {
		s.floors, s.floorMax = nil, ""
		s.unobserved()
	}
}

// caughtUp forgets the names that have ended, once no event or list can bring them back.
func (s *Stream) caughtUp() {
	if len(s.ended) > 0 && s.warming.Empty() && compare(s.position, s.endedMax) >= 0 {
		s.sweep()
	}
}

// Reached reports whether the store shows everything up to a version in the slots; nil stands for all slots.
func (s *Stream) Reached(slots []slot.Slot, version string) bool {
	for name := range s.doubted {
		d := s.entries[name].doubt
		if d.pending && compare(d.version, version) <= 0 && (slots == nil || slices.Contains(slots, d.slot)) {
			return false
		}
	}
	if compare(s.position, version) >= 0 {
		return true
	}
	if s.floors == nil || len(slots) == 0 {
		return false
	}
	for _, n := range slots {
		if compare(s.floors[n], version) < 0 {
			return false
		}
	}
	return true
}

// carries reports whether events of a slot go to the store.
func (s *Stream) carries(n slot.Slot) bool { return s.got[n] > 0 }

// covered reports whether a list of the slot already included an event at that version.
func (s *Stream) covered(n slot.Slot, version string) bool {
	return s.floors != nil && compare(version, s.floors[n]) <= 0 || s.replayed.Has(n) && compare(version, s.replaying) <= 0
}

// Verdict is what an event leads to besides the actions on the store.
type Verdict struct {
	// Missed are deleted objects whose event came when the store already had their namesake.
	Missed []Object
	// Doubted is true if there are objects to look up.
	Doubted bool
}

// Event applies an event of the watch, and appends what the store gets to out. The caller sends that, and then calls
// Advance.
func (s *Stream) Event(out []Out, e *Event) ([]Out, Verdict) {
	switch {
	case s.warming.Empty():
	case s.cfg.Moves:
		// The list may show an object in an older state, from before it moved elsewhere.
		s.buffer = append(s.buffer, *e)
	case e.Object.In && s.warming.Has(e.Object.Slot):
		s.buffer = append(s.buffer, *e)
		return out, Verdict{}
	}
	return s.apply(out, e)
}

func (s *Stream) apply(out []Out, e *Event) ([]Out, Verdict) {
	o := &e.Object
	is, ok := s.entries[o.Name]
	if ok && is.stale(o.Version) {
		d := is.doubt
		if d != nil && !d.pending && e.Type != Deleted && o.Right && o.Version == d.version {
			s.believe(o.Name) // the watch shows it again
		}
		namesake := s.cfg.Namesakes && is.here && is.uid != o.UID
		if e.Type == Deleted && namesake && o.In && s.carries(o.Slot) && !s.covered(o.Slot, o.Version) {
			return out, Verdict{Missed: []Object{*o}}
		}
		return out, Verdict{}
	}
	if s.cfg.Moves {
		return s.applyMoving(out, e, is)
	}
	if !o.In || !s.carries(o.Slot) || s.covered(o.Slot, o.Version) {
		return out, Verdict{}
	}
	return s.pass(out, e, o.Slot)
}

// applyMoving is apply for kinds whose objects change slots, with the entry of the object.
func (s *Stream) applyMoving(out []Out, e *Event, is entry) ([]Out, Verdict) {
	o := &e.Object
	here := is.here && s.carries(is.slot) // or else it is being dropped
	switch {
	case e.Type == Deleted && s.cfg.Selects:
		if !here || s.covered(is.slot, o.Version) {
			return out, Verdict{}
		}
		return s.pass(out, e, is.slot)
	case e.Type == Deleted && (!here || o.In && o.Slot == is.slot):
		if !here || s.covered(is.slot, o.Version) {
			return out, Verdict{}
		}
		return s.pass(out, e, is.slot)
	case e.Type != Deleted && o.In && s.carries(o.Slot) && !s.covered(o.Slot, o.Version):
		return s.pass(out, e, o.Slot)
	case !here || o.In && o.Slot == is.slot || s.covered(is.slot, o.Version):
		return out, Verdict{}
	case s.cfg.Selects && o.In && s.carries(o.Slot):
		// A list of that slot is newer than the event and did not show the object. The object may have moved on, or its
		// label is wrong.
		s.doubt(o.Name, &Doubt{Name: o.Name, uid: o.UID, slot: is.slot, last: *o, pending: true, version: o.Version})
		return out, Verdict{Doubted: true}
	default:
		s.Saw(is.slot, o.Version)
		s.end(o.Name, o.UID, o.Version, e.Type == Deleted, o.Version)
		return append(out, Out{Action: Leave, Object: *o, Kept: !s.warming.Empty()}), Verdict{}
	}
}

// pass applies an event of an object that the store has, or gets, in slot n.
func (s *Stream) pass(out []Out, e *Event, n slot.Slot) ([]Out, Verdict) {
	o := &e.Object
	s.Saw(n, o.Version)
	if !s.cfg.Selects {
		return append(out, s.accept(e)), Verdict{}
	}
	if d := s.entries[o.Name].doubt; d != nil && d.uid != o.UID {
		out = append(out, s.ending(d, d.version)) // its namesake came, so it is gone for sure
		if e.Type == Deleted {
			s.end(o.Name, o.UID, o.Version, false, o.Version) // and went, without having been here
			return out, Verdict{}
		}
	}
	switch {
	case e.Type == Deleted:
		s.doubt(o.Name, &Doubt{Name: o.Name, uid: o.UID, slot: n, last: *o, pending: true, version: o.Version})
		return out, Verdict{Doubted: true}
	case !o.Right:
		put := s.accept(e)
		put.Kept = true
		s.stray(*o)
		return append(out, put), Verdict{Doubted: true}
	default:
		return append(out, s.accept(e)), Verdict{}
	}
}

// accept notes an event that needs no look-up, and returns what the store gets.
func (s *Stream) accept(e *Event) Out {
	o := &e.Object
	if e.Type == Deleted {
		s.end(o.Name, o.UID, o.Version, true, o.Version)
		return Out{Action: Remove, Object: *o}
	}
	s.put(o)
	return Out{Action: Put, Type: e.Type, Object: *o}
}

// tracks reports whether every object that the store gets is noted.
func (s *Stream) tracks() bool {
	return s.cfg.Moves || s.cfg.Namesakes && (s.observing || s.floors != nil)
}

// put notes that the store gets an object.
func (s *Stream) put(o *Object) {
	is, ok := s.entries[o.Name]
	if ok && is.here && is.slot != o.Slot {
		s.Saw(is.slot, o.Version) // for the slot that it leaves this is its last version
	}
	switch {
	case s.tracks():
		s.set(o.Name, entry{uid: o.UID, version: o.Version, slot: o.Slot, here: true, handled: true})
	case ok:
		s.forget(o.Name)
	}
}

// end notes that the store no longer has an object, as of a version. handled is false if the object may be elsewhere in
// that state; see entry. at is the position that the caller is about to set.
func (s *Stream) end(name Name, uid, version string, handled bool, at string) {
	if s.warming.Empty() && s.replaying == "" && compare(version, later(s.position, at)) <= 0 {
		s.forget(name)
		return
	}
	s.set(name, entry{uid: uid, version: version, handled: handled})
}

// Size returns how many names the ledger holds, how many of them the store does not have, and how many are in doubt.
func (s *Stream) Size() (names, ended, doubted int) {
	return len(s.entries), len(s.ended), len(s.doubted)
}

// entry is the state of a name at a version. Events, lists and look-ups at earlier versions are stale.
type entry struct {
	uid     string
	version string
	// slot is where the store has the object, if here.
	slot slot.Slot
	here bool
	// handled is true if another event at that version brings nothing new. It is false if the object is elsewhere, since
	// its slot may still be gained, and if a doubt is about that version.
	handled bool
	doubt   *Doubt
}

// ledger holds the latest state of each name.
type ledger struct {
	entries map[Name]entry
	// doubted are the names with a doubt. ended are those that the store does not have, and endedMax is the latest of
	// their versions.
	doubted, ended map[Name]struct{}
	endedMax       string
}

func newLedger() ledger {
	return ledger{entries: map[Name]entry{}, doubted: map[Name]struct{}{}, ended: map[Name]struct{}{}}
}

func (l *ledger) set(name Name, e entry) {
	if e.doubt != nil {
		l.doubted[name] = struct{}{}
	} else {
		delete(l.doubted, name)
	}
	if e.here {
		delete(l.ended, name)
	} else {
		l.ended[name] = struct{}{}
		l.endedMax = later(l.endedMax, e.version)
	}
	l.entries[name] = e
}

func (l *ledger) forget(name Name) {
	delete(l.entries, name)
	delete(l.doubted, name)
	delete(l.ended, name)
}

// sweep forgets the names that the store does not have.
func (l *ledger) sweep() {
	for name := range l.ended {
		l.forget(name)
	}
	l.endedMax = ""
}

// stale reports whether an event at a version brings nothing new: it is older than the entry, or repeats it.
func (e entry) stale(version string) bool {
	c := compare(version, e.version)
	return c < 0 || c == 0 && (e.here || e.handled)
}

// shown reports whether a list brings nothing new: its version of the object is older than the entry's, or the same.
func (e entry) shown(version string) bool {
	c := compare(version, e.version)
	return c < 0 || c == 0 && e.handled
}
