package delivery

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Duties have slots beyond those of hashes. They have no objects, so a Share does not hold them. It only knows what was
// written in them: Write, Versions, Unsettled and Settle take slots of duties, too.

// hashes returns those of the slots that have objects.
func (s *Share) hashes(set slot.Set) slot.Set {
	return set.Intersect(s.slots.All())
}

// LoadDuties returns when the stores of whole kinds show what a duty may have to see before it begins (rule R8). With
// CauseHanded that is what its former owner wrote: the versions. With other causes it is all that was written before
// the call. A kind that lags by more than half a minute is logged and not waited for. It returns early if ctx ends.
func (s *Share) LoadDuties(ctx context.Context, cause table.Cause, versions table.Versions) {
	if cause == table.CauseHanded {
		s.reachShared(ctx, versions)
		return
	}
	present := table.Versions{}
	s.mu.Lock()
	for _, inf := range slices.Concat(s.informers, s.besides) {
		if inf.running && !inf.sharded {
			present[inf.wholeKey()] = table.List
		}
	}
	s.mu.Unlock()
	s.compareShared(ctx, present)
}

// runsBeside reports whether an informer of NewWholeInformer of the kind runs. s.mu is held.
func (s *Share) runsBeside(kind schema.GroupKind) bool {
	return slices.ContainsFunc(s.besides, func(i *informer) bool { return i.kind == kind && i.running })
}

// ReleaseDuties forgets the writes in slots of duties whose versions are not known: others have the duties now.
func (s *Share) ReleaseDuties(set slot.Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetOwed(set)
}
