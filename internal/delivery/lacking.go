package delivery

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/slot"
)

// A kind that cannot be listed must not keep slots from opening for all others. So a slot opens without it, and
// controllers that need the kind do not work on that slot until a list has succeeded (rule R8); see Lacks. A controller
// needs the kind that it reconciles, and the kinds that are declared as owned by it.
//
// A kind is excused once its lists have failed for Options.Excuse; being slow is not enough. Slots that go without the
// kind are not held up by it again until a list succeeds.
//
// While a slot's owner works, it may be able to list the kind, so the slot stays there until the next owner has listed
// it. If the owner leaves, the slot comes to a member that has listed the kind before: one that never has may be the
// only one that lacks the permission.

// defaultExcuse is the default of Options.Excuse.
const defaultExcuse = 5 * time.Second

// Lacking returns the slots that were opened without a kind that cannot be listed, by the kind that is missing.
func (s *Share) Lacking() map[schema.GroupKind]slot.Set {
	out := map[schema.GroupKind]slot.Set{}
	for _, inf := range s.Active() {
		if without, _ := inf.Source.Gaps(); !without.Empty() {
			out[inf.Kind] = out[inf.Kind].Union(without)
		}
	}
	return out
}

// Incomplete reports whether slots were opened without objects of this kind, which cannot be listed. Then the kind's
// informers do not show all of this member's share.
func (s *Share) Incomplete(kind schema.GroupKind) bool {
	if s.lacking.Load() == nil {
		return false
	}
	without := s.Lacking()[kind]
	return !without.Empty()
}

// recount computes what Lacks reports.
func (s *Share) recount() {
	s.counting.Lock()
	defer s.counting.Unlock()
	lacking := map[schema.GroupKind]slot.Set{}
	for _, inf := range s.Active() {
		without, _ := inf.Source.Gaps()
		if without.Empty() {
			continue
		}
		needed := []schema.GroupKind{inf.Kind}
		if inf.Role.Owned() {
			needed = slices.Collect(maps.Keys(inf.Role.Owners))
		}
		for _, kind := range needed {
			lacking[kind] = lacking[kind].Union(without)
		}
	}
	if len(lacking) == 0 {
		s.lacking.Store(nil)
		return
	}
	s.lacking.Store(&lacking)
}

// complete reports that slots do not go without the informer's kind any more. late are the slots that have been listed
// since they were opened; Open could not return their objects.
func (s *Share) complete(inf *feed.Informer, late slot.Set) {
	s.recount()
	found := openings{}
	// Open looks for late slots once it has opened them.
	found.collect(inf, late.Intersect(s.Unmuted()))
	s.Log.Info("A kind that slots were opened without is complete", "kind", inf.Kind.String(), "slots", late.String())
	if s.options.Completed != nil {
		s.options.Completed(found.sorted())
	}
}

func (o openings) sorted() map[schema.GroupKind]Opened {
	out := make(map[schema.GroupKind]Opened, len(o))
	for kind, opening := range o {
		out[kind] = opening.sorted()
	}
	return out
}
