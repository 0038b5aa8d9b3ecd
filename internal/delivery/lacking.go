package delivery

import (
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

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

// never is the number of a barrier that does not come: handlers believe nothing before it; see informer.arrived.
const never = math.MaxUint64

// excused reports whether a wait that began then need not go on for the kind: its lists have failed for long, and one
// that was sent since the wait began has failed. One from before does not count, since the kind may not have been
// needed any more. Nor does an API server that is down. One that answers 429 counts: its watch cache refuses one kind
// for as long as it cannot fill itself, and other kinds must not wait for that. s.mu is held.
func (s *source) excused(begun time.Time) bool {
	a := s.ailing[RequestList]
	return a.err != nil && !notServed(a.err) && !utilnet.IsConnectionRefused(a.err) && !a.sent.Before(begun) &&
		time.Since(a.since) >= s.inf.share.excuse
}

// ownerLeaves reports whether the owner of slot n, one of a set on its way here, is leaving. The slot of orphans, which
// is in no set, has the owners of all.
func (s *source) ownerLeaves(n slot.Slot, set slot.Set) bool {
	leaves := s.inf.share.leaves
	if leaves == nil || set.Has(n) {
		return leaves != nil && leaves(n)
	}
	return !slices.ContainsFunc(set.Slots(), func(other slot.Slot) bool { return !leaves(other) })
}

// goesWithout reports whether slot n was opened without the kind, which still cannot be listed. s.mu is held.
func (s *source) goesWithout(n slot.Slot) bool {
	return s.without.Has(n) && s.ailing[RequestList].err != nil
}

// withoutAll reports whether all of the slots go without the kind; false for no slots.
func (s *source) withoutAll(set slot.Set) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := set.Minus(s.without)
	return !set.Empty() && rest.Empty() && s.ailing[RequestList].err != nil
}

// complete reports whether the store holds slot n, or the kind is not served. s.mu is held.
func (s *source) complete(n slot.Slot) bool {
	return s.core.Ready(n) || s.vacant() || s.isCached(n) && s.core.Holds(n)
}

// isCached reports whether slot n has objects of the watch cache while the kind cannot be listed. s.mu is held.
func (s *source) isCached(n slot.Slot) bool {
	return s.cached.slots.Has(n) && s.ailing[RequestList].err != nil
}

// goWithout notes slots that are about to be opened without the kind. Handlers believe nothing about them until they
// are listed. s.mu is held.
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
	s.inf.share.log.Error(a.err, "Slots open although a kind cannot be listed: its controllers, and those of its owners, "+
		"do not work on them until it can",
		"kind", s.inf.kind.String(), "since", a.since.Format(time.RFC3339), "slots", set.String())
}

// noneLeft clears the slots that go without the kind if the kind turns out not to be served. s.mu is held.
func (s *source) noneLeft() {
	if !s.without.Empty() && s.vacant() {
		s.without = slot.Set{}
		go s.inf.share.completes(s.inf, slot.Set{})
	}
}

// Lacks reports whether the slot was opened although a kind cannot be listed that is needed to work on objects of a
// primary kind, or an informer that is needed has stopped (Ended). Nothing of that primary kind in the slot may be
// reconciled then.
func (s *Share) Lacks(kind schema.GroupKind, n slot.Slot) bool {
	if s.Stale(kind) {
		return true
	}
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
	for _, inf := range s.active() {
		inf.source.mu.Lock()
		without := inf.source.without
		inf.source.mu.Unlock()
		if without.Empty() {
			continue
		}
		needed := []schema.GroupKind{inf.kind}
		if inf.role.Owned() {
			needed = slices.Collect(maps.Keys(inf.role.Owners))
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

// completes reports that slots do not go without the informer's kind any more. late are the slots that have been listed
// since they were opened; Open could not return their objects.
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
