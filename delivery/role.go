package delivery

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/slot"
)

// role says how the objects of a kind are shared: those of a primary kind by their own keys, those of an owned kind by
// the keys of their controlling owners, so that parent and child meet in one member. A kind may have both roles; an
// informer has one of them.
type role struct {
	primary bool
	// owners are the kinds of the owners, and whether those are namespaced. nil: the kind is not owned.
	owners map[schema.GroupKind]bool
	// orphans: objects without a controlling owner are delivered beside those of the owners. See orphan.go.
	orphans bool
}

// subject is the primary object that has to be reconciled when something happens to an object.
type subject struct {
	kind schema.GroupKind
	name types.NamespacedName
}

// Shard declares a kind as primary: sharded by its own objects' keys. It must be called before any informer of
// NewInformer of the kind runs; afterwards it returns an error, since a controller of that kind would miss events.
//
// A kind may be primary and owned at once: an object of it then has two slots, and each role an informer of its own,
// NewInformer's for the primary one and NewOwnedInformer's for the other.
func (s *Share) Shard(kind schema.GroupKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	if r.primary {
		return nil
	}
	if err := s.settledRole(kind, func(i *informer) bool { return !i.asOwned }); err != nil {
		return err
	}
	r.primary = true
	s.roles[kind] = r
	return nil
}

// Own declares a kind as owned: the objects whose controlling owner is of the owner's kind are sharded by that owner's
// key; others are not delivered, except for orphans after AddOrphans. The owner's kind should be primary; namespaced
// says whether it is namespaced. Several kinds of owners may be declared for a kind. It returns false, and nothing
// changes, where an informer runs already whose objects would be others.
func (s *Share) Own(kind, owner schema.GroupKind, namespaced bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	if s.settledRole(kind, r.asOwned) != nil {
		return false
	}
	owners := maps.Clone(r.owners)
	if owners == nil {
		owners = map[schema.GroupKind]bool{}
	}
	owners[owner] = namespaced
	r.owners = owners
	s.roles[kind] = r
	return true
}

// Disown takes back what Own declared: the informers of the kind that have not begun to run will hold all objects of
// it, or what Shard says. It returns an error where one runs already.
func (s *Share) Disown(kind schema.GroupKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	if r.owners == nil {
		return nil
	}
	if err := s.settledRole(kind, r.asOwned); err != nil {
		return err
	}
	if r.owners, r.orphans = nil, false; r.primary {
		s.roles[kind] = r
	} else {
		delete(s.roles, kind)
	}
	return nil
}

// asOwned says whether an informer of a kind of this role holds objects by their owners, where they have any.
func (r role) asOwned(i *informer) bool { return i.asOwned || !r.primary }

// of returns which part of its kind's role an informer has.
func (r role) of(i *informer) role {
	if r.asOwned(i) {
		return role{owners: r.owners, orphans: r.orphans}
	}
	return role{primary: true}
}

// settledRole returns an error if one of those informers of the kind runs, since its role cannot be changed any more.
func (s *Share) settledRole(kind schema.GroupKind, which func(*informer) bool) error {
	if !s.runs(kind, which) {
		return nil
	}
	return fmt.Errorf("kind %s: cannot be sharded in another way any more, an informer of it is already running: "+
		"set up the controllers of sharded kinds before the manager starts", kind)
}

// runs says whether one of those informers of the kind runs. s.mu is held.
func (s *Share) runs(kind schema.GroupKind, which func(*informer) bool) bool {
	return slices.ContainsFunc(s.informers, func(i *informer) bool { return i.kind == kind && i.running && which(i) })
}

// Idle returns the primary and owned kinds of which no informer runs, or where a kind is both, not one of each: slots
// that are warmed now would look empty of them.
func (s *Share) Idle() []schema.GroupKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	var idle []schema.GroupKind
	for kind, r := range s.roles {
		plain := func(i *informer) bool { return !r.asOwned(i) }
		if r.primary && !s.runs(kind, plain) || r.owners != nil && !s.runs(kind, r.asOwned) {
			idle = append(idle, kind)
		}
	}
	slices.SortFunc(idle, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return idle
}

// Sharded says whether the kind is declared as primary.
func (s *Share) Sharded(kind schema.GroupKind) bool { return s.role(kind).primary }

// Owned says whether the kind is declared as owned.
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

// SlotOf returns the slot of an object of a primary kind, or of one that is only owned; false where it has none: the
// kind is not sharded, or the object of an owned kind has no controlling owner of the kinds declared.
func (s *Share) SlotOf(kind schema.GroupKind, obj metav1.Object) (slot.Slot, bool) {
	for _, part := range s.role(kind).parts() {
		n, _, ok := s.slotBy(kind, part, obj)
		return n, ok
	}
	return 0, false
}

// Slots returns the slots of an object, without repetition: that of SlotOf first, and where the kind is primary and
// owned that of its controlling owner.
func (s *Share) Slots(kind schema.GroupKind, obj metav1.Object) []slot.Slot {
	var out []slot.Slot
	for _, part := range s.role(kind).parts() {
		if n, _, ok := s.slotBy(kind, part, obj); ok && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// slotBy returns an object's slot by its kind's role, and what has to be reconciled because of it.
func (s *Share) slotBy(kind schema.GroupKind, r role, obj metav1.Object) (slot.Slot, subject, bool) {
	hash, about, ok := s.hashBy(kind, r, obj)
	if !ok {
		return 0, subject{}, false
	}
	return s.slots.Of(hash), about, true
}

// hashBy returns the hash that decides an object's slot by its kind's role, and what has to be reconciled because of
// it.
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

// slotOf returns the slot of an object, or of the object within a cache.DeletedFinalStateUnknown. That of an orphan is
// none of the rota's, and nothing has to be reconciled because of it: see orphanSlot.
func (i *informer) slotOf(obj any) (slot.Slot, subject, bool) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		if gone.Obj == nil {
			namespace, name, err := cache.SplitMetaNamespaceKey(gone.Key)
			if err != nil || i.mobile() {
				return 0, subject{}, false
			}
			return i.share.Slot(namespace, name, ""), subject{i.kind, types.NamespacedName{Namespace: namespace, Name: name}}, true
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

// owned says that the kind's objects are where their owners are.
func (i *informer) owned() bool { return i.role.owners != nil }

// mobile says that objects of one name may be in different slots over time.
func (i *informer) mobile() bool { return i.owned() || i.share.key == slot.KeyUID }
