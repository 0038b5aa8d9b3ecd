package stream

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/slot"
)

// List is a list of the whole, of the slots that are wanted when it begins. It replaces the store.
type List struct {
	Set    slot.Set
	ticket uint64
	ledger ledger
	// listed are the names that the list showed; strays are objects that the watch may not show.
	listed map[Name]struct{}
	strays map[Name]Object
}

// Begin starts a list of the whole, of the slots that are wanted now. From here on the store may no longer
// hold other slots, even if they are wanted again before the list comes into effect.
func (s *Stream) Begin(wanted slot.Set) *List {
	for n := range s.got {
		if !wanted.Has(slot.Slot(n)) {
			s.got[n], s.ready[n] = 0, 0
		}
	}
	s.first = s.first.Intersect(wanted)
	return s.NewList(wanted)
}

// NewList returns a list of slots that replaces nothing.
func (s *Stream) NewList(set slot.Set) *List {
	return &List{Set: set, ticket: s.ticket, ledger: newLedger(), listed: map[Name]struct{}{}, strays: map[Name]Object{}}
}

// Shows notes that the list shows an object in its slots. The stream keeps the body of one that is not Right.
func (l *List) Shows(s *Stream, o Object) {
	l.has(s, o)
	if !s.cfg.Selects {
		return
	}
	l.listed[o.Name] = struct{}{}
	if o.Right {
		delete(l.strays, o.Name)
	} else {
		l.strays[o.Name] = o
	}
}

func (l *List) has(s *Stream, o Object) {
	s.Saw(o.Slot, o.Version)
	if s.cfg.Moves {
		l.ledger.set(o.Name, entry{uid: o.UID, version: o.Version, slot: o.Slot, here: true, handled: true})
	}
}

// Listed reports whether the list showed a name.
func (l *List) Listed(name Name) bool {
	_, ok := l.listed[name]
	return ok
}

// Adds adds an object that the list did not show, and that exists in its slots although no selector selects it. The
// stream keeps the body.
func (l *List) Adds(s *Stream, o Object) {
	l.has(s, o)
	l.strays[o.Name] = o
}

// Strays are the objects of the list that the watch may not show.
func (l *List) Strays() []Object { return slices.Collect(maps.Values(l.strays)) }

// Event applies an event that comes before the bookmark that ends the list, as with WatchList. It appends what the
// store gets to out.
func (l *List) Event(s *Stream, out []Out, e *Event) []Out {
	o := &e.Object
	if is, had := l.ledger.entries[o.Name]; had && !(o.In && l.Set.Has(o.Slot)) {
		l.ledger.forget(o.Name)
		delete(l.strays, o.Name)
		s.Saw(is.slot, o.Version)
		out = append(out, Out{Action: Leave, Object: *o})
	}
	if !o.In {
		return out
	}
	s.Saw(o.Slot, o.Version)
	if !l.Set.Has(o.Slot) {
		return out
	}
	if e.Type == Deleted {
		l.ledger.forget(o.Name)
		delete(l.listed, o.Name) // it may have left the selector
		delete(l.strays, o.Name)
		return append(out, Out{Action: Remove, Object: *o})
	}
	l.Shows(s, *o)
	return append(out, Out{Action: Put, Type: e.Type, Object: *o, Kept: !o.Right})
}

// Commit notes that a list at a version has replaced, or is about to replace, the whole store. It reports whether there
// are objects to look up.
func (s *Stream) Commit(l *List, version string) (doubted bool) {
	s.ledger = l.ledger
	s.lists++
	for n := range s.got {
		if !l.Set.Has(slot.Slot(n)) {
			s.got[n], s.ready[n] = 0, 0
			continue
		}
		s.got[n] = l.ticket
	}
	if s.lists == 1 {
		s.first = l.Set
	}
	s.position, s.listed = version, version
	s.floors, s.floorMax = nil, ""
	s.warming, s.buffer = slot.Set{}, nil
	s.keepStrays(l.Strays())
	return len(l.strays) > 0
}

// keepStrays notes objects of a list that the watch may not show.
func (s *Stream) keepStrays(strays []Object) {
	for _, o := range strays {
		if is, ok := s.entries[o.Name]; !ok || !is.stale(o.Version) || is.here && is.version == o.Version {
			s.stray(o)
		}
	}
}
