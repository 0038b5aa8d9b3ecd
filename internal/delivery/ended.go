package delivery

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ended are the informers of sharded kinds that have stopped and that no other one has replaced, by kind and role.
// Share.mu guards it. Their stores are what this member last knew: a key whose object is in one is no deletion.
type ended map[view]*informer

// view is a kind in one of its roles.
type view struct {
	kind    schema.GroupKind
	byOwner bool
}

// Ended returns the kinds whose informers hold a share and have all stopped, in one of their roles. What this share
// shows of such a kind is old, and handlers hear nothing of it.
func (s *Share) Ended() []schema.GroupKind {
	var kinds []schema.GroupKind
	for _, inf := range s.endings() {
		kinds = append(kinds, inf.kind)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(kinds)
}

// Stale reports whether informers have stopped that are needed to work on objects of a primary kind: those of the kind
// itself, or of children whose owners are of the kind. See Ended.
func (s *Share) Stale(kind schema.GroupKind) bool {
	return slices.ContainsFunc(s.endings(), func(inf *informer) bool {
		_, owner := inf.role.Owners[kind]
		return owner || inf.kind == kind && inf.role.Primary
	})
}

// endings returns the informers that have stopped and were not replaced. One is replaced when another one of its kind
// and role has synced: until then what it holds is all that is known.
func (s *Share) endings() []*informer {
	if !s.hasEnded.Load() {
		return nil
	}
	var over []view
	for _, inf := range s.successors() {
		if inf.HasSynced() { // it takes locks under which s.mu may be taken
			over = append(over, view{inf.kind, inf.byOwner})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range over {
		delete(s.ended, v)
	}
	s.hasEnded.Store(len(s.ended) > 0)
	return slices.Collect(maps.Values(s.ended))
}

// successors returns the informers that run in place of ones that have stopped.
func (s *Share) successors() []*informer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*informer
	for _, inf := range s.informers {
		if _, ended := s.ended[view{inf.kind, inf.byOwner}]; ended && inf.running {
			out = append(out, inf)
		}
	}
	return out
}

// stores returns the informers of a kind whose stores tell what exists.
func (s *Share) stores(kind schema.GroupKind) []*informer {
	out := s.informersOf(kind)
	for _, inf := range s.endings() {
		if inf.kind == kind && inf.role.Primary {
			out = append(out, inf)
		}
	}
	return out
}
