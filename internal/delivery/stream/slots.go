package stream

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/slot"
)

// TaskKind is the kind of the next step that brings the store in line with the wanted slots.
type TaskKind uint8

const (
	// Nothing means that there is nothing to do.
	Nothing TaskKind = iota
	// Drop is for slots that the stream carried and that are not wanted. It no longer carries them.
	Drop
	// Settle is for slots that the stream carries and that the store may not hold yet.
	Settle
	// Grow is for slots that are wanted and not carried, or that have to be listed anew.
	Grow
)

// Task is one such step.
type Task struct {
	Kind TaskKind
	Set  slot.Set
	// Lists reports whether a list of the whole has overtaken the task: see Stream.Valid.
	Lists  uint64
	ticket uint64
	// Carried are slots of Set that the store holds already. For Grow.
	Carried slot.Set
}

// Next returns the next task if the slots in held are wanted.
func (s *Stream) Next(held slot.Set) Task {
	t := Task{Lists: s.lists, ticket: s.ticket}
	if s.lists == 0 {
		return t // the first list brings everything wanted
	}
	var dropped, unsettled, wanted, carried slot.Set
	for i := range s.got {
		n := slot.Slot(i) // below Config.Slots
		switch {
		case !held.Has(n):
			if s.got[i] > 0 {
				dropped.Add(n)
				s.got[i], s.ready[i] = 0, 0
			}
		case s.lacks(n):
			wanted.Add(n)
			if s.got[i] > 0 {
				carried.Add(n)
			}
		case s.ready[i] < s.got[i]:
			unsettled.Add(n)
		}
	}
	switch {
	case !dropped.Empty():
		s.first = s.first.Minus(dropped)
		s.believeAll(dropped, "")
		t.Kind, t.Set = Drop, dropped
	case !unsettled.Empty():
		t.Kind, t.Set = Settle, unsettled
	case !wanted.Empty():
		t.Kind, t.Set, t.Carried = Grow, wanted, carried
	}
	return t
}

// lacks reports whether a slot has to be listed.
func (s *Stream) lacks(n slot.Slot) bool { return s.got[n] < max(s.want[n], 1) }

// Wanted returns the slots in held that have to be listed.
func (s *Stream) Wanted(held slot.Set) slot.Set {
	var set slot.Set
	for i := range s.got {
		if n := slot.Slot(i); held.Has(n) && s.lacks(n) { // below Config.Slots
			set.Add(n)
		}
	}
	return set
}

// Valid reports whether a task is still valid: no list of the whole has overtaken it.
func (s *Stream) Valid(t Task) bool { return s.lists == t.Lists }

// Renew requests a new list of the slots' objects, one that starts after this call.
func (s *Stream) Renew(set slot.Set) {
	s.ticket++
	for _, n := range set.Slots() {
		s.want[n] = s.ticket
	}
}

// Ready reports whether the store holds a slot, from a list that began after its last Renew.
func (s *Stream) Ready(n slot.Slot) bool { return s.ready[n] >= max(s.want[n], 1) }

// Holds reports whether the store holds a slot, from any list.
func (s *Stream) Holds(n slot.Slot) bool { return s.ready[n] > 0 }

// Carries reports whether events of a slot go to the store.
func (s *Stream) Carries(n slot.Slot) bool { return s.carries(n) }

// Carried returns the slots whose events go to the store.
func (s *Stream) Carried() slot.Set {
	var set slot.Set
	for n, ticket := range s.got {
		if ticket > 0 {
			set.Add(slot.Slot(n)) // below Config.Slots
		}
	}
	return set
}

// Needed returns the slots whose events must not be missed while the position advances.
func (s *Stream) Needed() slot.Set { return s.Carried().Union(s.warming) }

// Settling is a Settle task in progress.
type Settling struct {
	got map[slot.Slot]uint64
	// Fresh are the slots about which handlers may have received false events.
	Fresh slot.Set
}

// Settle begins a task of that kind. Once the store holds everything that was sent before it, the caller calls Settled.
func (s *Stream) Settle(t Task) Settling {
	out := Settling{got: map[slot.Slot]uint64{}}
	for _, n := range t.Set.Slots() {
		out.got[n] = s.got[n]
		if s.ready[n] == 0 && !s.first.Has(n) {
			out.Fresh.Add(n)
		}
	}
	return out
}

// Settled ends it. It returns the slots that are ready.
func (s *Stream) Settled(by Settling) slot.Set {
	var ready slot.Set
	for n, ticket := range by.got {
		if s.got[n] == ticket {
			s.ready[n] = ticket
			ready.Add(n)
		}
	}
	return ready
}

// Warm begins a Grow: from now on the events of the slots wait for their list.
func (s *Stream) Warm(set slot.Set) { s.warming, s.buffer = set, nil }

// Item reports whether the store gets an object that the list of a Grow shows.
func (s *Stream) Item(o Object) bool {
	is, ok := s.entries[o.Name]
	if ok {
		if is.shown(o.Version) {
			return false
		}
		if is.doubt != nil {
			s.believe(o.Name)
		}
	}
	s.put(&o)
	return true
}

// Place is where the store has an object.
type Place struct {
	Slot slot.Slot
	UID  string
}

// Stored returns the objects that the store has in some slots once it has received everything that was sent. It is for
// streams whose ledger holds every object (Config.Moves). It leaves out objects with a version later than upTo, unless
// upTo is "".
//
// While slots are listed, objects move there from other slots. So the caller calls Stored when it uses the list, and
// not before.
func (s *Stream) Stored(set slot.Set, upTo string) map[Name]Place {
	out := map[Name]Place{}
	for name, is := range s.entries {
		if is.here && set.Has(is.slot) && (upTo == "" || compare(is.version, upTo) <= 0) {
			out[name] = Place{is.slot, is.uid}
		}
	}
	return out
}

// Missing reports whether the store loses an object that it has in slot n. Either the list of that slot at a version
// did not show the object, or the slot was lost: then version is "".
func (s *Stream) Missing(name Name, n slot.Slot, version string) bool {
	is, ok := s.entries[name]
	switch {
	case ok && (!is.here || is.slot != n):
		return false // the object is gone from there already
	case ok && version != "" && compare(is.version, version) > 0:
		return false // it came since
	case !ok:
		return !s.cfg.Moves
	}
	s.end(name, is.uid, is.version, false, "")
	return true
}

// Release ends the warming of a Grow: the stream carries its slots from the version of their list on. It appends what
// the store gets by the events that waited.
func (s *Stream) Release(out []Out, t Task, version string, strays []Object) ([]Out, Verdict) {
	buffer := s.buffer
	s.warming, s.buffer = slot.Set{}, nil
	s.believeAll(t.Set, version)
	s.keepStrays(strays)
	behind := compare(version, s.position) > 0
	if behind && s.floors == nil {
		s.floors = make([]string, len(s.got))
	}
	if s.since == nil {
		s.since = make([]string, len(s.got))
	}
	for _, n := range t.Set.Slots() {
		s.got[n] = t.ticket
		if s.since[n] == "" {
			s.since[n] = version
		}
		if behind {
			s.floors[n] = version
		}
	}
	if behind {
		s.floorMax = later(s.floorMax, version)
	}
	verdict := Verdict{Doubted: len(strays) > 0}
	s.replayed, s.replaying = t.Set, version
	for i := range buffer {
		var v Verdict
		out, v = s.apply(out, &buffer[i])
		verdict.Doubted = verdict.Doubted || v.Doubted
		verdict.Missed = append(verdict.Missed, v.Missed...)
	}
	s.replayed, s.replaying = slot.Set{}, ""
	s.passFloors()
	s.caughtUp()
	return out, verdict
}

// Listing notes the version of a list whose items have been sent.
func (s *Stream) Listing(version string) { s.listed = later(s.listed, version) }

// Observe begins to note every object that is sent, until Unobserve: a list of slots, or a loss, is about to be
// compared with the store.
func (s *Stream) Observe() { s.observing = true }

// Unobserve ends what Observe began.
func (s *Stream) Unobserve() {
	s.observing = false
	s.unobserved()
}

// unobserved forgets what was noted only for lists.
func (s *Stream) unobserved() {
	if s.tracks() || !s.cfg.Namesakes {
		return
	}
	maps.DeleteFunc(s.entries, func(_ Name, e entry) bool { return e.here && e.doubt == nil })
}

// TakeSince returns, by slot, the version of the list that brought the slot, or "" if it was taken before. It forgets
// the versions of the slots in a set. It returns nil if no slots were listed.
func (s *Stream) TakeSince(set slot.Set) []string {
	if s.since == nil {
		return nil
	}
	since := slices.Clone(s.since)
	for _, n := range set.Slots() {
		s.since[n] = ""
	}
	return since
}
