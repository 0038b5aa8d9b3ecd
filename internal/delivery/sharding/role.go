package sharding

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// Role determines how the objects of a kind are sharded: objects of a primary kind by their own keys, objects of an
// owned kind by the keys of their controlling owners, so that parent and child are on the same member. A kind may have
// both roles. An informer has one of them. The zero value is the role of a kind that is not sharded.
type Role struct {
	Primary bool
	// Owners are the kinds of the owners, and whether they are namespaced. It is nil if the kind is not owned.
	Owners map[schema.GroupKind]bool
	// Orphans is true if objects without a controlling owner are also delivered, to all members.
	Orphans bool
}

// Subject is the primary object to reconcile after an event.
type Subject struct {
	Kind schema.GroupKind
	Name types.NamespacedName
}

// Owned reports whether objects are sharded by their owners.
func (r Role) Owned() bool { return r.Owners != nil }

// Parts returns the roles one by one, the primary one first.
func (r Role) Parts() []Role {
	var out []Role
	if r.Primary {
		out = append(out, r.part(false))
	}
	if r.Owned() {
		out = append(out, r.part(true))
	}
	return out
}

// part returns an informer's part of its kind's role. If byOwner is true, the informer asks for objects by their
// owners, even if the kind is primary as well.
func (r Role) part(byOwner bool) Role {
	if byOwner || !r.Primary {
		return Role{Owners: r.Owners, Orphans: r.Orphans}
	}
	return Role{Primary: true}
}

// Adopts reports whether an object without a controlling owner is delivered because of the role.
func (r Role) Adopts(obj metav1.Object) bool {
	return r.Orphans && metav1.GetControllerOfNoCopy(obj) == nil
}

// SlotBy returns an object's slot by a part of its kind's role, and the object to reconcile after an event of it.
func (s *Roles) SlotBy(kind schema.GroupKind, part Role, obj metav1.Object) (slot.Slot, Subject, bool) {
	hash, about, ok := s.hashBy(kind, part, obj)
	if !ok {
		return 0, Subject{}, false
	}
	return s.slots.Of(hash), about, true
}

// hashBy returns the hash that decides an object's slot by a part of its kind's role, and the object to reconcile after
// an event of it.
func (s *Roles) hashBy(kind schema.GroupKind, part Role, obj metav1.Object) (uint64, Subject, bool) {
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
	uid := obj.GetUID()
	if part.Owned() {
		ref := metav1.GetControllerOfNoCopy(obj)
		if ref == nil {
			return 0, Subject{}, false
		}
		group, err := schema.ParseGroupVersion(ref.APIVersion)
		if err != nil {
			return 0, Subject{}, false
		}
		kind = schema.GroupKind{Group: group.Group, Kind: ref.Kind}
		namespaced, ok := part.Owners[kind]
		if !ok {
			return 0, Subject{}, false
		}
		if !namespaced {
			name.Namespace = ""
		}
		name.Name, uid = ref.Name, ref.UID
	}
	return s.key.Hash(name.Namespace, name.Name, string(uid)), Subject{kind, name}, true
}
