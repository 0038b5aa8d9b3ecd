package streamtest

import (
	"fmt"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// Store is the store that a stream fills, with a record of what it got for the checks.
type Store struct {
	cfg  stream.Config
	core *stream.Stream
	// Has is what the store has, by name.
	Has []State
	// put is the highest version of each name that the store got. left is the highest version at which an object of the
	// name had moved on from a slot that the stream carries. gone are the UIDs of the objects whose deletion it got.
	put, left []uint64
	gone      map[int]bool
}

// NewStore returns an empty store of so many names.
func NewStore(cfg stream.Config, core *stream.Stream, names int) *Store {
	return &Store{
		cfg: cfg, core: core, Has: Nothing(names), put: make([]uint64, names), left: make([]uint64, names),
		gone: map[int]bool{},
	}
}

// Nothing is what an empty store has.
func Nothing(names int) []State {
	has := make([]State, names)
	for n := range has {
		has[n].Name = n
	}
	return has
}

// Send has the store get what the stream decided, and reports what comes back.
func (s *Store) Send(outs []stream.Out) error {
	for _, out := range outs {
		is := *out.Object.Body.(*State)
		n := is.Name
		switch out.Action {
		case stream.Put:
			switch {
			case is.Version < s.put[n] || is.Version == s.put[n] && s.Has[n].Exists && !s.cfg.Selects:
				return fmt.Errorf("the store gets %v after version %d", is, s.put[n])
			case is.Version <= s.left[n]:
				return fmt.Errorf("the store gets %v after it had gone on from there", is)
			case s.gone[is.UID]:
				return fmt.Errorf("the store gets %v after it was gone", is)
			}
			s.put[n], s.Has[n] = is.Version, is
		case stream.Remove:
			s.gone[is.UID] = true
			s.Has[n] = State{Name: n}
		case stream.Leave:
			if is.In && s.core.Carries(is.Slot) {
				s.left[n] = max(s.left[n], is.Version)
			}
			s.Has[n] = State{Name: n}
		case stream.ActionUnknown:
			return fmt.Errorf("%v", out)
		}
	}
	return nil
}

// Replace has a list of the whole replace the store.
func (s *Store) Replace(has []State) error {
	for n, is := range has {
		if is.Exists && is.Version < s.put[n] && is.UID == s.Has[n].UID {
			return fmt.Errorf("a list of the whole brings %v back", is)
		}
		s.put[n] = max(s.put[n], is.Version)
	}
	s.Has = has
	return nil
}

// Stored returns in which slots the store has names, of some. See stream.Stream.Stored.
func (s *Store) Stored(set slot.Set, upTo string) map[int]slot.Slot {
	out := map[int]slot.Slot{}
	if s.cfg.Moves {
		for name, place := range s.core.Stored(set, upTo) {
			out[NameOf(name)] = place.Slot
		}
		return out
	}
	for n, is := range s.Has {
		if is.Exists && set.Has(is.Slot) {
			out[n] = is.Slot
		}
	}
	return out
}

// Unlisted returns which names the store has in some slots although neither a list nor a look-up showed them. verified
// are UIDs that were looked up, by name. It is empty where a list shows whatever exists.
func (s *Store) Unlisted(list *stream.List, set slot.Set, upTo string, verified map[int]int) (names []int) {
	if !s.cfg.Selects {
		return nil
	}
	stored := s.Stored(set, upTo)
	for n, was := range s.Has {
		uid, known := verified[n]
		if _, has := stored[n]; has && !(known && uid == was.UID) && !list.Listed(nameOf(n)) {
			names = append(names, n)
		}
	}
	return names
}

// Verify adds to a list what a look-up shows of a name that the list did not show, and reports whether that exists
// there.
func (s *Store) Verify(list *stream.List, is *State) bool {
	if !is.Exists || is.UID != s.Has[is.Name].UID || !is.In || !list.Set.Has(is.Slot) {
		return false
	}
	list.Adds(s.core, is.Object())
	return true
}

// Grow has a list of a task's slots go to the store, by send.
func (s *Store) Grow(
	t stream.Task, list *stream.List, items []*State, version string, send func([]stream.Out) error,
) (stream.Verdict, error) {
	old := s.Stored(t.Carried, version)
	for _, item := range items {
		_, had := old[item.Name]
		delete(old, item.Name)
		obj := item.Object()
		if !s.core.Item(obj) || had && !s.cfg.Moves && s.Has[item.Name].Version == item.Version {
			continue
		}
		if err := send([]stream.Out{{Action: stream.Put, Type: stream.Added, Object: obj}}); err != nil {
			return stream.Verdict{}, err
		}
	}
	s.core.Listing(version)
	s.Lose(old, version)
	outs, v := s.core.Release(nil, t, version, list.Strays())
	return v, send(outs)
}

// Lose has the store lose what lies in a slot that was lost, or that a list at a version did not show.
func (s *Store) Lose(names map[int]slot.Slot, version string) {
	for n, in := range names {
		if s.core.Missing(nameOf(n), in, version) {
			s.Has[n] = State{Name: n}
		}
	}
}

// Shows reports what the store does not show of a slot up to a version, of names that have not changed since. now
// returns what is so of a name, and whether its label is wrong: then the watch does not show it.
func (s *Store) Shows(in slot.Slot, version uint64, now func(name int) (is State, wrong bool)) error {
	for n, has := range s.Has {
		is, wrong := now(n)
		switch {
		case is.Version > version: // it may show that, or what was before
		case wrong, s.cfg.Selects && has.Exists && has.Label != has.Slot: // the watch does not show it
		case is.Exists && is.In && is.Slot == in && has != is:
			return fmt.Errorf("slot %v up to version %d: the store has %v, not %v", in, version, has, is)
		case has.Exists && has.Slot == in && has != is &&
			!(s.cfg.Selects && is.Exists && is.UID == has.UID && is.Slot == has.Slot):
			return fmt.Errorf("slot %v up to version %d: the store still has %v, but %v", in, version, has, is)
		}
	}
	return nil
}
