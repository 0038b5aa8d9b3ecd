package delivery

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// slotOf returns the slot of an object, or of the object within a cache.DeletedFinalStateUnknown. An orphan is in none
// of the rota's slots, and no object is reconciled because of it; see orphan.go.
func (i *informer) slotOf(obj any) (slot.Slot, sharding.Subject, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if gone.Obj == nil {
			namespace, name, err := cache.SplitMetaNamespaceKey(gone.Key)
			if err != nil || i.mobile() {
				return 0, sharding.Subject{}, false
			}
			return i.share.Slot(namespace, name, ""),
				sharding.Subject{Kind: i.kind, Name: types.NamespacedName{Namespace: namespace, Name: name}}, true
		}
		obj = gone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return 0, sharding.Subject{}, false
	}
	n, about, ok := i.share.SlotBy(i.kind, i.role, accessor)
	if !ok && i.role.Adopts(accessor) {
		return i.share.OrphanSlot(), sharding.Subject{}, true
	}
	return n, about, ok
}

// place is slotOf without what is to be reconciled. It is called for every event of the watch.
func (i *informer) place(obj metav1.Object) (n slot.Slot, ok bool) {
	if i.role.Owned() {
		n, _, ok = i.slotOf(obj)
		return n, ok
	}
	return i.share.Slot(obj.GetNamespace(), obj.GetName(), string(obj.GetUID())), true
}

// mobile reports whether objects of one name may be in different slots over time.
func (i *informer) mobile() bool { return i.role.Owned() || i.share.Key() == slot.KeyUID }

// Locate returns the slot of a primary object by its name. With key UID the name alone does not tell: ok is false if
// the object is not in a store and no deletion of it was seen in the last 10 minutes.
func (s *Share) Locate(kind schema.GroupKind, name types.NamespacedName) (n slot.Slot, ok bool) {
	if s.Key() != slot.KeyUID {
		return s.Slot(name.Namespace, name.Name, ""), true
	}
	if n, ok := s.Stored(kind, name); ok {
		return n, true
	}
	return s.Tombstones.Find(sharding.Subject{Kind: kind, Name: name})
}

// Stored returns the slot of a primary object that is in a store.
func (s *Share) Stored(kind schema.GroupKind, name types.NamespacedName) (slot.Slot, bool) {
	key := cache.NewObjectName(name.Namespace, name.Name).String()
	for _, inf := range s.stores(kind) {
		if inf.byOwner {
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

// noteTombstone remembers the slot of a deleted primary object: with key UID its name does not tell.
func (i *informer) noteTombstone(about sharding.Subject, n slot.Slot) {
	if i.role.Primary && i.share.Key() == slot.KeyUID && i.share.Holds(n) {
		i.share.Tombstones.Add(about, n)
	}
}

// noteGoneOwner remembers the slot of an owner that no store has, as its child tells it: with key UID the owner's name
// does not.
func (i *informer) noteGoneOwner(about sharding.Subject, n slot.Slot) {
	if i.share.Key() != slot.KeyUID || !i.share.Holds(n) {
		return
	}
	if _, stored := i.share.Stored(about.Kind, about.Name); !stored {
		i.share.Tombstones.Add(about, n)
	}
}
