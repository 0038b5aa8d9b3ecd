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
// the keys of their controlling owners, so that parent and child meet in one member.
type role struct {
	primary bool
	// owners are the kinds of the owners, and whether those are namespaced. nil: the kind is not owned.
	owners map[schema.GroupKind]bool
}

// subject is the primary object that has to be reconciled when something happens to an object.
type subject struct {
	kind schema.GroupKind
	name types.NamespacedName
}

// Shard declares a kind as primary: sharded by its own objects' keys. It must be called before any informer of
// the kind runs; afterwards it returns an error, since a controller of that kind would miss events.
func (s *Share) Shard(kind schema.GroupKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r := s.roles[kind]; {
	case r.primary:
		return nil
	case r.owners != nil:
		return fmt.Errorf("kind %s: cannot be sharded by its own keys, since another controller owns objects of it, and they are "+
			"sharded by their owners' keys: run the two controllers in managers of their own, each with a rota of its own", kind)
	}
	if err := s.settledRole(kind); err != nil {
		return err
	}
	s.roles[kind] = role{primary: true}
	return nil
}

// Own declares a kind as owned: the objects whose controlling owner is of the owner's kind are sharded by that owner's
// key; others are not delivered. The owner's kind should be primary; namespaced says whether it is namespaced. Several
// kinds of owners may be declared for a kind. It returns false, and nothing changes, where the kind is primary, or
// where an informer of the whole kind runs already.
func (s *Share) Own(kind, owner schema.GroupKind, namespaced bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	if r.primary || s.settledRole(kind) != nil {
		return false
	}
	owners := maps.Clone(r.owners)
	if owners == nil {
		owners = map[schema.GroupKind]bool{}
	}
	owners[owner] = namespaced
	s.roles[kind] = role{owners: owners}
	return true
}

// Disown takes back what Own declared: the informers of the kind that have not begun to run will hold all objects of
// it. It returns an error where one runs already.
func (s *Share) Disown(kind schema.GroupKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.roles[kind].owners == nil {
		return nil
	}
	if err := s.settledRole(kind); err != nil {
		return err
	}
	delete(s.roles, kind)
	return nil
}

// settledRole returns an error if an informer of the kind runs, since its role cannot be changed any more.
func (s *Share) settledRole(kind schema.GroupKind) error {
	if !s.runs(kind) {
		return nil
	}
	return fmt.Errorf("kind %s: cannot be sharded in another way any more, an informer of it is already running: "+
		"set up the controllers of sharded kinds before the manager starts", kind)
}

// runs says whether an informer of the kind runs. s.mu is held.
func (s *Share) runs(kind schema.GroupKind) bool {
	return slices.ContainsFunc(s.informers, func(i *informer) bool { return i.kind == kind && i.running })
}

// Idle returns the primary and owned kinds of which no informer runs: slots that are warmed now would look empty of them.
func (s *Share) Idle() []schema.GroupKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	var idle []schema.GroupKind
	for kind := range s.roles {
		if !s.runs(kind) {
			idle = append(idle, kind)
		}
	}
	slices.SortFunc(idle, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return idle
}

// Sharded says whether the kind is declared as primary.
func (s *Share) Sharded(kind schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roles[kind].primary
}

// SlotOf returns the slot of an object of a primary or owned kind; false where it has none: the kind is not sharded, or the
// object of an owned kind has no controlling owner of the kinds declared.
func (s *Share) SlotOf(kind schema.GroupKind, obj metav1.Object) (slot.Slot, bool) {
	s.mu.Lock()
	r := s.roles[kind]
	s.mu.Unlock()
	if !r.primary && r.owners == nil {
		return 0, false
	}
	n, _, ok := s.slotBy(kind, r, obj)
	return n, ok
}

// slotBy returns an object's slot by its kind's role, and what has to be reconciled because of it.
func (s *Share) slotBy(kind schema.GroupKind, r role, obj metav1.Object) (slot.Slot, subject, bool) {
	hash, about, ok := s.hashBy(kind, r, obj)
	if !ok {
		return 0, subject{}, false
	}
	return s.slots.Of(hash), about, true
}

// hashBy returns the hash that decides an object's slot by its kind's role, and what has to be reconciled because of it.
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

// slotOf returns the slot of an object, or of the object within a cache.DeletedFinalStateUnknown.
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
	return i.share.slotBy(i.kind, i.role, accessor)
}

// owned says that the kind's objects are where their owners are.
func (i *informer) owned() bool { return i.role.owners != nil }

// mobile says that objects of one name may be in different slots over time.
func (i *informer) mobile() bool { return i.owned() || i.share.key == slot.KeyUID }
