package stream

import "github.com/rota-dev/rota/slot"

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
	s.caughtUp()
	return out, verdict
}

// Listing notes the version of a list whose items have been sent.
func (s *Stream) Listing(version string) { s.listed = later(s.listed, version) }
