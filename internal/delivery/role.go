package delivery

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// role says how the objects of a kind are sharded: those of a primary kind by their own keys, those of an owned kind by
// the keys of their controlling owners, so that parent and child are in the same member. A kind may have both roles. An
// informer has one of them.
type role struct {
	primary bool
	// owners are the kinds of the owners, and whether those are namespaced. nil: the kind is not owned.
	owners map[schema.GroupKind]bool
	// orphans: objects without a controlling owner are delivered as well. See orphan.go.
	orphans bool
}

// subject is the primary object to reconcile after an event.
type subject struct {
	kind schema.GroupKind
	name types.NamespacedName
}

// Shard declares a kind as primary: sharded by its own objects' keys. It must be called before an informer of the kind
// made by NewInformer runs. Afterwards it returns an error: a controller of that kind would miss events.
//
// A kind may be primary and owned. Then an object of it has two slots, and each role has informers of its own:
// NewInformer makes those of the primary role, NewOwnedInformer the others.
func (s *Share) Shard(kind schema.GroupKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	if r.primary {
		return nil
	}
	if err := s.checkNotRunning(kind, func(i *informer) bool { return !i.asOwned }); err != nil {
		return err
	}
	r.primary = true
	s.roles[kind] = r
	return nil
}

// Own declares a kind as owned. Objects whose controlling owner is of the owner's kind are sharded by that owner's key;
// others are not delivered, except for orphans after AddOrphans. The owner's kind should be primary; namespaced says
// whether it is namespaced. A kind may have several kinds of owners. Own returns false and changes nothing if an
// informer that it would affect runs already.
func (s *Share) Own(kind, owner schema.GroupKind, namespaced bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	if s.checkNotRunning(kind, r.asOwned) != nil {
		return false
	}
	owners := maps.Clone(r.owners)
	if owners == nil {
		owners = map[schema.GroupKind]bool{}
	}
	owners[owner] = namespaced
	if !namespaced {
		s.ClusterScoped(owner)
	}
	r.owners = owners
	s.roles[kind] = r
	return true
}

// Disown reverts Own: informers of the kind that have not started will hold all objects, or what Shard says. It returns
// an error if an affected informer runs.
func (s *Share) Disown(kind schema.GroupKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	if r.owners == nil {
		return nil
	}
	if err := s.checkNotRunning(kind, r.asOwned); err != nil {
		return err
	}
	if r.owners, r.orphans = nil, false; r.primary {
		s.roles[kind] = r
	} else {
		delete(s.roles, kind)
	}
	return nil
}

// asOwned reports whether an informer of a kind with this role holds objects by their owners.
func (r role) asOwned(i *informer) bool { return i.asOwned || !r.primary }

// of returns the informer's part of its kind's role.
func (r role) of(i *informer) role {
	if r.asOwned(i) {
		return role{owners: r.owners, orphans: r.orphans}
	}
	return role{primary: true}
}

// checkNotRunning returns an error if one of those informers of the kind runs: its role cannot change any more. s.mu is
// held.
func (s *Share) checkNotRunning(kind schema.GroupKind, which func(*informer) bool) error {
	if !s.runs(kind, which) {
		return nil
	}
	return fmt.Errorf("kind %s: cannot be sharded in another way any more, an informer of it is already running: "+
		"set up the controllers of sharded kinds before the manager starts, or with JoinAfter of the rota.Rota this one "+
		"before others that use the kind", kind)
}

// runs reports whether one of those informers of the kind runs. s.mu is held.
func (s *Share) runs(kind schema.GroupKind, which func(*informer) bool) bool {
	return slices.ContainsFunc(s.informers, func(i *informer) bool { return i.kind == kind && i.running && which(i) })
}

// Sharded reports whether the kind is declared as primary.
func (s *Share) Sharded(kind schema.GroupKind) bool { return s.role(kind).primary }

// Owned reports whether the kind is declared as owned.
func (s *Share) Owned(kind schema.GroupKind) bool { return s.role(kind).owners != nil }

func (s *Share) role(kind schema.GroupKind) role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roles[kind]
}

// parts returns the roles one by one, the primary one first.
func (r role) parts() []role {
	var out []role
	if r.primary {
		out = append(out, role{primary: true})
	}
	if r.owners != nil {
		out = append(out, role{owners: r.owners, orphans: r.orphans})
	}
	return out
}

// SlotOf returns the slot of an object: by its own key for a primary kind, by its controlling owner's for one that is
// only owned. It returns false if the kind is not sharded, or if the object has no controlling owner of a declared
// kind.
func (s *Share) SlotOf(kind schema.GroupKind, obj metav1.Object) (slot.Slot, bool) {
	for _, part := range s.role(kind).parts() {
		n, _, ok := s.slotBy(kind, part, obj)
		return n, ok
	}
	return 0, false
}

// Slots returns the slots of an object, each once: that of SlotOf first, and for a kind that is primary and owned that
// of its controlling owner.
func (s *Share) Slots(kind schema.GroupKind, obj metav1.Object) []slot.Slot {
	var out []slot.Slot
	for _, part := range s.role(kind).parts() {
		if n, _, ok := s.slotBy(kind, part, obj); ok && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// slotBy returns an object's slot by its kind's role, and the object to reconcile after an event of it.
func (s *Share) slotBy(kind schema.GroupKind, r role, obj metav1.Object) (slot.Slot, subject, bool) {
	hash, about, ok := s.hashBy(kind, r, obj)
	if !ok {
		return 0, subject{}, false
	}
	return s.slots.Of(hash), about, true
}

// hashBy returns the hash that decides an object's slot by its kind's role, and the object to reconcile after an event
// of it.
func (s *Share) hashBy(kind schema.GroupKind, r role, obj metav1.Object) (uint64, subject, bool) {
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	uid := obj.GetUID()
	if r.owners != nil {
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil {
			return 0, subject{}, false
		}
		group, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			return 0, subject{}, false
		}
		kind = schema.GroupKind{Group: group.Group, Kind: ref.Kind}
		namespaced, ok := r.owners[kind]
		if !ok {
			return 0, subject{}, false
		}
		if !namespaced {
			name.Namespace = ""
		}
		name.Name, uid = ref.Name, ref.UID
	}
	return s.key.Hash(name.Namespace, name.Name, string(uid)), subject{kind, name}, true
}

// slotOf returns the slot of an object, or of the object within a cache.DeletedFinalStateUnknown. An orphan is in none
// of the rota's slots, and no object is reconciled because of it; see orphanSlot.
func (i *informer) slotOf(obj any) (slot.Slot, subject, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if gone.Obj == nil {
			namespace, name, err := cache.SplitMetaNamespaceKey(gone.Key)
			if err != nil || i.mobile() {
				return 0, subject{}, false
			}
			return i.share.Slot(namespace, name, ""), subject{i.kind, types.NamespacedName{Namespace: namespace, Name: name}},
				true
		}
		obj = gone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return 0, subject{}, false
	}
	n, about, ok := i.share.slotBy(i.kind, i.role, accessor)
	if !ok && i.adoptable(accessor) {
		return i.share.orphanSlot(), subject{}, true
	}
	return n, about, ok
}

// place is slotOf without what is to be reconciled. It is called for every event of the watch.
func (i *informer) place(obj metav1.Object) (n slot.Slot, ok bool) {
	if i.owned() {
		n, _, ok = i.slotOf(obj)
		return n, ok
	}
	return i.share.slots.Of(i.share.key.Hash(obj.GetNamespace(), obj.GetName(), string(obj.GetUID()))), true
}

// owned reports whether the informer holds objects by their owners.
func (i *informer) owned() bool { return i.role.owners != nil }

// mobile reports whether objects of one name may be in different slots over time.
func (i *informer) mobile() bool { return i.owned() || i.share.key == slot.KeyUID }
