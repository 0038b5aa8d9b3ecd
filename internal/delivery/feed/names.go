package feed

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/stream"
)

// names are the names of all objects of a kind, in any member's share. A watch that does not select shows them all. So
// a name that is not among them is the name of no object, as far as the watch has come, and a cache of the whole kind
// would say the same. The zero value keeps none. flow.mu guards it.
type names struct {
	on bool
	// known is nil until a list has shown all objects. listing is nil unless such a list is under way beside the watch.
	known, listing *nameSet
}

// fresh returns the set for a list that a watch goes on from, or nil if no names are kept.
func (n *names) fresh() *nameSet {
	if !n.on {
		return nil
	}
	return newNameSet()
}

// replace begins anew with a list that the watch goes on from. all is nil if it did not show all objects.
func (n *names) replace(all *nameSet) { n.known, n.listing = all, nil }

// begin begins a list beside the watch, and returns the set that it fills, or nil if that is not needed.
func (n *names) begin() *nameSet {
	if n.known != nil {
		return nil
	}
	n.listing = n.fresh()
	return n.listing
}

// listed notes the end of a list beside the watch, and whether it has shown all objects as they are. That counts if
// nothing else has begun since.
func (n *names) listed(names *nameSet, all bool) {
	switch {
	case names == nil || names != n.listing:
	case all:
		n.replace(names)
	default:
		n.listing = nil
	}
}

// event notes an event of the watch. The list under way may be older or newer than the event, so it only gets what was
// added: a name too many costs a look-up.
func (n *names) event(e *stream.Event) {
	if n.known != nil {
		n.known.event(e)
	}
	if n.listing != nil && e.Type != stream.Deleted {
		n.listing.add(e.Object.Name)
	}
}

// lacks reports whether there is no object of that name. It is false if that is not known.
func (n *names) lacks(name stream.Name) bool { return n.known != nil && !n.known.has(name) }

// nameSet is a set of names. It has 64 bits of each. Of a million objects two have the same with a probability of 3 in
// 100 million. If one of these is deleted, the other one counts as absent until the next list.
type nameSet struct {
	seed maphash.Seed
	of   map[uint64]struct{}
}

func newNameSet() *nameSet { return &nameSet{maphash.MakeSeed(), map[uint64]struct{}{}} }

func (s *nameSet) add(n stream.Name) { s.of[maphash.Comparable(s.seed, n)] = struct{}{} }

func (s *nameSet) has(n stream.Name) bool {
	_, has := s.of[maphash.Comparable(s.seed, n)]
	return has
}

func (s *nameSet) event(e *stream.Event) {
	if e.Type == stream.Deleted {
		delete(s.of, maphash.Comparable(s.seed, e.Object.Name))
		return
	}
	s.add(e.Object.Name)
}

// KeepNames has informers of owned kinds keep the names of all objects, for Absent. Call it before they run. It has no
// effect on informers that receive a part of the objects.
func (r *registry) KeepNames() { r.keepNames.Store(true) }

// Absent reports whether no object of that name exists, as far as the watches of the kind have come. It is false if
// that is not known.
func (r *registry) Absent(kind schema.GroupKind, key types.NamespacedName) bool {
	informers := r.InformersOf(kind)
	for _, inf := range informers {
		if !inf.Source.lacksName(stream.Name(key)) {
			return false
		}
	}
	return len(informers) > 0
}
