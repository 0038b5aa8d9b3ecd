package stream

import (
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/slot"
)

// Doubt is about an object in the store. The watch does not show whether it still exists, or how it changes. So it is
// looked up until it has ended, or the watch shows it again. A doubt that is no longer in the ledger is void.
type Doubt struct {
	Name Name
	uid  string
	slot slot.Slot
	// last is the object as it was last sent to the store, or as the event in doubt showed it.
	last Object
	// pending is true if an event waits for the look-up. The event shows last: the object may have left its slot. If no
	// event is pending, the object exists.
	pending bool
	// version is the version of the pending event, or of the last state sent.
	version string

	due   time.Duration
	pause time.Duration
	busy  bool
}

const (
	// FirstCheck is the shortest time between two look-ups of an object that exists.
	FirstCheck = time.Second
	// LastCheck is the longest.
	LastCheck = time.Minute
	// Soon is the due time of a doubt that is looked up FirstCheck after Due first sees it.
	Soon = time.Duration(-1)
)

// doubt puts a doubt about an object into the ledger.
func (s *Stream) doubt(name Name, d *Doubt) {
	s.set(name, entry{uid: d.uid, version: d.version, slot: d.slot, here: true, handled: !d.pending, doubt: d})
}

// stray notes that the store has an object that the watch may not show.
func (s *Stream) stray(o Object) {
	s.doubt(o.Name, &Doubt{
		Name: o.Name, uid: o.UID, slot: o.Slot, last: o, version: o.Version, due: Soon, pause: FirstCheck,
	})
}

// believe drops a doubt.
func (s *Stream) believe(name Name) {
	is, ok := s.entries[name]
	if !ok || is.doubt == nil {
		return
	}
	if is.doubt = nil; s.tracks() {
		s.set(name, is)
		return
	}
	s.forget(name)
}

// believeAll drops the doubts in some slots that are about a version or an earlier one; "" stands for any version.
func (s *Stream) believeAll(set slot.Set, version string) {
	for _, name := range slices.Collect(maps.Keys(s.doubted)) {
		d := s.entries[name].doubt
		if set.Has(d.slot) && (version == "" || compare(d.version, version) <= 0) {
			s.believe(name)
		}
	}
}

// ending returns what the store gets when the object in doubt has ended by a version.
func (s *Stream) ending(d *Doubt, version string) Out {
	out := Out{Action: Leave, Object: d.last, Kept: true}
	if d.last.In && d.last.Slot == d.slot {
		out.Action = Remove
	}
	if !d.pending {
		out.At = version
	}
	return out
}

// Due returns the doubts to look up now, oldest version first, and the time until the next one is due. It does not
// return a doubt again until LookedUp or Again.
func (s *Stream) Due(now time.Duration) ([]*Doubt, time.Duration) {
	var out []*Doubt
	next := LastCheck
	for name := range s.doubted {
		d := s.entries[name].doubt
		if d.due == Soon {
			d.due = now + FirstCheck
		}
		switch wait := d.due - now; {
		case d.busy:
		case wait <= 0:
			d.busy = true
			out = append(out, d)
		default:
			next = min(next, wait)
		}
	}
	slices.SortFunc(out, func(a, b *Doubt) int { return compare(a.version, b.version) })
	return out, next
}

// Asks returns what to look up for a doubt: its object at version atLeast or later. pending is true if an event waits
// for the answer; current is false if the doubt is void.
func (s *Stream) Asks(d *Doubt) (atLeast string, pending, current bool) {
	// A list may be newer than the position.
	return later(later(d.version, s.position), s.floorMax), d.pending, s.current(d)
}

func (s *Stream) current(d *Doubt) bool { return s.entries[d.Name].doubt == d }

// Again schedules the next look-up of a doubt. The pause grows from first to last.
func (s *Stream) Again(d *Doubt, now, first, last time.Duration) {
	d.busy = false
	d.pause = min(max(2*d.pause, first), last)
	d.due = now + d.pause
}

// LookedUp applies the answer to a look-up, at a version, and appends what the store gets to out. found is the object
// of that name, or nil if there is none. If ended is true, the caller sends out and then calls Ended. Until then the
// doubt stands.
func (s *Stream) LookedUp(out []Out, d *Doubt, found *Object, version string, now time.Duration) (_ []Out, ended bool) {
	if !s.current(d) {
		return out, false // overtaken by an event or a list
	}
	is := s.entries[d.Name]
	d.slot = is.slot
	if !s.carries(is.slot) {
		s.believe(d.Name) // lost meanwhile
		return out, false
	}
	exists := found != nil && found.UID == d.uid
	n, in := is.slot, exists
	if exists {
		n, in = found.Slot, found.In
	}
	if s.warming.Has(is.slot) || in && s.warming.Has(n) || compare(version, s.listed) < 0 {
		d.busy, d.due = false, now+retryLookUp // a list under way, or one that came meanwhile, may be newer
		return out, false
	}
	if !in || !s.carries(n) {
		gone := s.ending(d, version)
		seen, handled := version, true
		switch {
		case exists:
			gone = Out{Action: Leave, Object: *found}
			seen, handled = found.Version, false
		case found != nil: // a namesake, which the stream will show
			seen, handled = found.Version, false
		}
		at := gone.At
		if at == "" {
			at = gone.Object.Version
		}
		s.Saw(is.slot, at)
		is.version, is.handled, is.here = later(is.version, seen), handled, false
		s.set(d.Name, is)
		return append(out, gone), true
	}
	newer := compare(found.Version, d.last.Version) > 0
	if d.pending {
		d.pending, d.pause = false, 0
		newer = true // the exit itself is a change that the store has not seen
	}
	// Where the label is right, the watch brings the object.
	if newer && !found.Right {
		d.slot, d.last, d.version = n, *found, found.Version
		s.Saw(n, d.version)
		s.set(d.Name, entry{uid: d.uid, version: found.Version, slot: n, here: true, handled: true, doubt: d})
		out = append(out, Out{Action: Put, Type: Modified, Object: *found, Kept: true})
	}
	s.Again(d, now, FirstCheck, LastCheck)
	return out, false
}

const retryLookUp = 50 * time.Millisecond

// Ended drops a doubt whose object's end has been sent.
func (s *Stream) Ended(d *Doubt) {
	if !s.current(d) {
		return
	}
	is := s.entries[d.Name]
	is.doubt = nil
	s.set(d.Name, is)
	s.caughtUp()
}
