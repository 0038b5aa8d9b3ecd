package delivery

import (
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// A kind that cannot be listed must not keep the slots of all others from opening. So a slot opens without it, and
// whoever needs the kind does not work on that slot until the list has succeeded (rule R8): Lacks tells. Controllers
// need the kind that they reconcile, and those that are declared as owned by it.
//
// A kind is excused once its lists have failed for Options.Excuse, not while they are merely slow. Slots that go without
// it, since they were warmed for instance, are not held up by it any more until a list succeeds. A member whose
// informer has never listed the kind does not take slots from one that is alive: it may be the only one that lacks the
// permission.

// defaultExcuse is Options.Excuse where that is 0.
const defaultExcuse = 5 * time.Second

// never is the number of a barrier that does not come: handlers believe nothing before it: see informer.arrived.
const never = math.MaxUint64

// excused says that whoever began to wait for the kind need not: its lists have failed for long, and have since then. That
// one failed long ago, and was not needed any more, says nothing; nor does an API server that is busy or not there. s.mu
// is held.
func (s *source) excused(begun time.Time) bool {
	a := s.ailing[RequestList]
	return a.err != nil && !notServed(a.err) && !ordinary(a.err) && !a.last.Before(begun) && time.Since(a.since) >= s.inf.share.excuse
}

// goesWithout says that slot n need not wait for the kind, since it was found not to come, and still cannot be listed.
// s.mu is held.
func (s *source) goesWithout(n slot.Slot) bool {
	return s.without.Has(n) && s.ailing[RequestList].err != nil
}

// withoutAll says that none of the slots, of which there are some, need wait for the kind.
func (s *source) withoutAll(set slot.Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := set.Minus(s.without)
	return !set.Empty() && rest.Empty() && s.ailing[RequestList].err != nil
}

// complete says that the store holds slot n, or that there is nothing to be held. s.mu is held.
func (s *source) complete(n slot.Slot) bool { return s.core.Ready(n) || s.vacant() }

// goWithout notes slots that are to be opened without the kind: handlers believe nothing of them until they are listed.
// s.mu is held.
func (s *source) goWithout(set slot.Set) {
	set = set.Minus(s.without)
	if set.Empty() {
		return
	}
	s.without, s.late = s.without.Union(set), s.late.Union(set)
	for _, n := range set.Slots() {
		s.inf.arrived[n].Store(never)
	}
	a := s.ailing[RequestList]
	s.inf.share.log.Error(a.err, "Slots open although a kind cannot be listed: its controllers, and those of its owners, do not work on them until it can",
		"kind", s.inf.kind.String(), "since", a.since.Format(time.RFC3339), "slots", set.String())
}

// noneLeft forgets what was opened without the kind where that turns out to be not served: there is nothing of it. s.mu
// is held.
func (s *source) noneLeft() {
	if !s.without.Empty() && s.vacant() {
		s.without = slot.Set{}
		go s.inf.share.completes(s.inf, slot.Set{})
	}
}

// Lacks says that the slot was opened although a kind cannot be listed that is needed to work on objects of a primary
// kind in it. Nothing of that kind in the slot may be reconciled.
func (s *Share) Lacks(kind schema.GroupKind, n slot.Slot) bool {
	lacking := s.lacking.Load()
	if lacking == nil {
		return false
	}
	slots := (*lacking)[kind]
	return slots.Has(n)
}

// Lacking returns the slots that were opened without a kind that cannot be listed, by the kind that is missing.
func (s *Share) Lacking() map[schema.GroupKind]slot.Set {
	out := map[schema.GroupKind]slot.Set{}
	for _, inf := range s.active() {
		inf.source.mu.Lock()
		if without := inf.source.without; !without.Empty() {
			out[inf.kind] = out[inf.kind].Union(without)
		}
		inf.source.mu.Unlock()
	}
	return out
}

// Incomplete says that slots were opened without objects of this kind, which cannot be listed: what its informers show
// is not all of this member's share.
func (s *Share) Incomplete(kind schema.GroupKind) bool {
	if s.lacking.Load() == nil {
		return false
	}
	without := s.Lacking()[kind]
	return !without.Empty()
}

// recount brings what Lacks says up to date.
func (s *Share) recount() {
	s.counting.Lock()
	defer s.counting.Unlock()
	lacking := map[schema.GroupKind]slot.Set{}
	for _, inf := range s.active() {
		inf.source.mu.Lock()
		without := inf.source.without
		inf.source.mu.Unlock()
		if without.Empty() {
			continue
		}
		needed := []schema.GroupKind{inf.kind}
		if inf.owned() {
			needed = slices.Collect(maps.Keys(inf.role.owners))
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

// completes tells the share's user that slots need not go without the informer's kind any more. late are those that
// have been listed since they were opened: what Open could not return of them.
func (s *Share) completes(inf *informer, late slot.Set) {
	s.recount()
	found := openings{}
	// Open looks for late slots once it has opened them.
	inf.collect(late.Intersect(*s.open.Load()), found)
	s.log.Info("A kind that slots were opened without is complete", "kind", inf.kind.String(), "slots", late.String())
	if s.completed != nil {
		s.completed(found.sorted())
	}
}

func (o openings) sorted() map[schema.GroupKind]Opened {
	out := make(map[schema.GroupKind]Opened, len(o))
	for kind, opening := range o {
		out[kind] = opening.sorted()
	}
	return out
}
