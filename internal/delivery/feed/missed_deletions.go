package feed

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// Handlers do not hear of deletions in slots that are not open: while slots are on their way to this member, in a
// handover for instance. They are recorded here, and Open returns them to be enqueued (Opened.Deleted).

// misses are these deletions, by slot.
type misses struct {
	by *slots
	mu sync.Mutex
	of map[slot.Slot]map[sharding.Subject]struct{}
}

// miss records a deletion in a slot that is held, unless heard returns true. Open flips the slots before it takes the
// lock, so it gets what is recorded here.
func (m *misses) miss(n slot.Slot, about sharding.Subject, heard func() bool) (missed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if heard() {
		return false
	}
	if !m.by.Holds(n) || m.by.IsLedElsewhere() {
		return true
	}
	if m.of[n] == nil {
		m.of[n] = map[sharding.Subject]struct{}{}
	}
	m.of[n][about] = struct{}{}
	return true
}

// TakeMissed removes and returns the deletions recorded in the slots.
func (m *misses) TakeMissed(set slot.Set) []sharding.Subject {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []sharding.Subject
	for n, missed := range m.of {
		if !set.Has(n) {
			continue
		}
		out = slices.AppendSeq(out, maps.Keys(missed))
		delete(m.of, n)
	}
	return out
}

// missLate records a deletion for a slot that is not open. The store does not show the deletion, since a namesake has
// replaced the object.
func (i *Informer) missLate(o stream.Object) {
	if i.share.open.Load().Has(o.Slot) {
		return
	}
	i.miss(o.Slot, sharding.Subject{Kind: i.Kind, Name: types.NamespacedName(o.Name)}, func() bool { return false })
}
