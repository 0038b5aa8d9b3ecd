package streamtest

import (
	"fmt"
	"strconv"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// state is an object in one state.
type state struct {
	name    int
	uid     int
	version int
	slot    slot.Slot
	in      bool
	label   slot.Slot // what a selector sees
	exists  bool
}

// change is what happened to a name at a version. after does not exist where it was deleted.
type change struct{ before, after state }

func (c change) version() int { return c.after.version }

// server is an API server: what it has, and all that happened, in order.
type server struct {
	selects bool
	version int
	uids    int
	has     []state
	log     []change
}

func newServer(names int, selects bool) *server {
	s := &server{selects: selects, version: 10, has: make([]state, names)}
	for n := range s.has {
		s.has[n].name = n
	}
	return s
}

func (s *server) set(to state) {
	s.version++
	to.version = s.version
	s.log = append(s.log, change{s.has[to.name], to})
	s.has[to.name] = to
}

// selected says that a selector of slots selects an object.
func (s *server) selected(o state, asked slot.Set) bool {
	return o.exists && (!s.selects || asked.Has(o.label))
}

// event is what a watch of slots tells of a change, if anything.
func (s *server) event(c change, asked slot.Set) (stream.Event, bool) {
	was, is := s.selected(c.before, asked), s.selected(c.after, asked)
	switch {
	case is && was:
		return stream.Event{Type: stream.Modified, Object: object(c.after)}, true
	case is:
		return stream.Event{Type: stream.Added, Object: object(c.after)}, true
	case was:
		last := c.before
		last.version = c.after.version
		return stream.Event{Type: stream.Deleted, Object: object(last)}, true
	}
	return stream.Event{}, false
}

// object is a state as the stream sees it.
func object(o state) stream.Object {
	return stream.Object{
		Name: stream.Name{Namespace: "a", Name: strconv.Itoa(o.name)}, UID: "u" + strconv.Itoa(o.uid),
		Version: strconv.Itoa(o.version), Slot: o.slot, In: o.in, Right: o.label == o.slot, Body: o,
	}
}

func (o state) String() string {
	if !o.exists {
		return fmt.Sprintf("%d is gone at %d", o.name, o.version)
	}
	return fmt.Sprintf("%d (%d) in %v at %d, label %v, in=%v", o.name, o.uid, o.slot, o.version, o.label, o.in)
}
