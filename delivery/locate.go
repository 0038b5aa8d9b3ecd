package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// Locate returns the slot of a primary object by its name. With key UID the name alone does not tell: false where neither the
// object is in a store nor its deletion was seen lately.
func (s *Share) Locate(kind schema.GroupKind, name types.NamespacedName) (slot.Slot, bool) {
	if s.key != slot.KeyUID {
		return s.Slot(name.Namespace, name.Name, ""), true
	}
	if n, ok := s.Stored(kind, name); ok {
		return n, true
	}
	return s.graves.find(subject{kind, name})
}

// Stored returns the slot of a primary object that is in a store.
func (s *Share) Stored(kind schema.GroupKind, name types.NamespacedName) (slot.Slot, bool) {
	key := cache.NewObjectName(name.Namespace, name.Name).String()
	for _, inf := range s.informersOf(kind) {
		if inf.asOwned {
			continue
		}
		obj, exists, err := inf.GetIndexer().GetByKey(key)
		if err != nil || !exists {
			continue
		}
		if n, _, ok := inf.slotOf(obj); ok {
			return n, true
		}
	}
	return 0, false
}

// Live asks the API server, consistently, whether an object of that name exists, be it that one or a namesake, within what the
// informers of the kind select.
func (s *Share) Live(ctx context.Context, kind schema.GroupKind, name types.NamespacedName) (bool, error) {
	for _, inf := range s.informersOf(kind) {
		obj, _, err := inf.source.lookUp(ctx, cache.NewObjectName(name.Namespace, name.Name), "")
		if err != nil && !notServed(err) {
			return false, fmt.Errorf("%s %s: %w", kind, name, err)
		}
		if obj != nil {
			return true, nil
		}
	}
	return false, nil
}

const (
	// graveTime is how long the slot of an object is remembered that was deleted: whoever hears of the deletion asks soon, and
	// children that the garbage collector takes name it for a while.
	graveTime = 10 * time.Minute
	// graveSweep is how many more there must be than were left the last time before old ones are looked for.
	graveSweep = 1024
)

// graves are the slots of objects with key UID that were deleted, by name (rule R15).
type graves struct {
	mu    sync.Mutex
	of    map[subject]grave
	sweep int
}

type grave struct {
	slot slot.Slot
	dug  time.Time
}

func (g *graves) bury(about subject, n slot.Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of == nil {
		g.of = map[subject]grave{}
	}
	g.of[about] = grave{n, time.Now()}
	if len(g.of) < g.sweep+graveSweep {
		return
	}
	for about, grave := range g.of {
		if time.Since(grave.dug) > graveTime {
			delete(g.of, about)
		}
	}
	g.sweep = len(g.of)
}

func (g *graves) find(about subject) (slot.Slot, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found, ok := g.of[about]
	if !ok || time.Since(found.dug) > graveTime {
		return 0, false
	}
	return found.slot, true
}

// forget forgets what lay in slots that were lost.
func (g *graves) forget(set slot.Set) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for about, grave := range g.of {
		if set.Has(grave.slot) {
			delete(g.of, about)
		}
	}
}

// bury remembers the slot of a primary object whose deletion came by: with key UID its name does not tell.
func (i *informer) bury(about subject, n slot.Slot) {
	if i.role.primary && i.share.key == slot.KeyUID && i.share.Holds(n) {
		i.share.graves.bury(about, n)
	}
}
