package streamtest

import (
	"fmt"
	"strconv"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// State is an object of a modelled kind in one state. Names and UIDs are numbers, versions numbers from 1.
type State struct {
	Name, UID int
	Version   uint64
	Slot      slot.Slot
	Label     slot.Slot // what a selector sees
	In        bool      // it lies in a slot
	Exists    bool
}

// Selected says whether a list or a watch of slots shows the object.
func (s *State) Selected(cfg *stream.Config, asked slot.Set) bool {
	return s.Exists && (!cfg.Selects || asked.Has(s.Label))
}

// Object is the state as the stream sees it. Its body is the *State.
func (s *State) Object() stream.Object {
	return stream.Object{
		Name: nameOf(s.Name), UID: strconv.Itoa(s.UID), Version: text(s.Version), Slot: s.Slot, In: s.In,
		Right: s.Label == s.Slot, Body: s,
	}
}

// String describes it in traces.
func (s State) String() string {
	if !s.Exists {
		return fmt.Sprintf("object %d: gone at %d", s.Name, s.Version)
	}
	return fmt.Sprintf("object %d (%d): in slot %v at %d, label %v, in=%v",
		s.Name, s.UID, s.Slot, s.Version, s.Label, s.In)
}

// Change is what happened to a name. The object before has the version of the change, as DELETED events show it.
type Change struct{ Before, After stream.Object }

// NewChange returns the change of a state to another one, at a version.
func NewChange(before, after State, version uint64) Change {
	before.Version, after.Version = version, version
	return Change{before.Object(), after.Object()}
}

// State is what is so after the change.
func (c *Change) State() State { return *c.After.Body.(*State) }

// Event is what a watch of slots receives of the change, if anything.
func (c *Change) Event(cfg *stream.Config, asked slot.Set) (stream.Event, bool) {
	was, is := c.Before.Body.(*State).Selected(cfg, asked), c.After.Body.(*State).Selected(cfg, asked)
	switch {
	case is && was:
		return stream.Event{Type: stream.Modified, Object: c.After}, true
	case is:
		return stream.Event{Type: stream.Added, Object: c.After}, true
	case was:
		return stream.Event{Type: stream.Deleted, Object: c.Before}, true
	}
	return stream.Event{}, false
}

func nameOf(n int) stream.Name { return stream.Name{Name: strconv.Itoa(n)} }

// NameOf returns the number of a name.
func NameOf(name stream.Name) int {
	n, _ := strconv.Atoi(name.Name)
	return n
}

func text(version uint64) string { return strconv.FormatUint(version, 10) }
