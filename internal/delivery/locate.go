package delivery

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// Locate returns the slot of a primary object by its name. With key UID the name alone does not tell: ok is false if
// the object is not in a store and no deletion of it was seen in the last 10 minutes.
func (s *Share) Locate(kind schema.GroupKind, name types.NamespacedName) (n slot.Slot, ok bool) {
	if s.key != slot.KeyUID {
		return s.Slot(name.Namespace, name.Name, ""), true
	}
	if n, ok := s.Stored(kind, name); ok {
		return n, true
	}
	return s.tombstones.find(subject{kind, name})
}

// Stored returns the slot of a primary object that is in a store.
func (s *Share) Stored(kind schema.GroupKind, name types.NamespacedName) (slot.Slot, bool) {
	key := cache.NewObjectName(name.Namespace, name.Name).String()
	for _, inf := range s.stores(kind) {
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

// Live asks the API server, with a consistent read, whether an object of that name exists, be it the same or a
// namesake. It sees what the informers of the kind select.
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
