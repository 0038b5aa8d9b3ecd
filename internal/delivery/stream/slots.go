package stream

import "github.com/rota-dev/rota/slot"

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

// Renew asks for a list of the slots that begins from now on.
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
