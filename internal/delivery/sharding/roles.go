// Package sharding maps objects to slots by the role of their kind, and determines how a list or a watch asks for the
// objects of slots: by a label, by ranges of a hash, or not at all. It sends nothing and waits for nothing.
package sharding

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

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

// Options configure how objects are sharded. The zero value works.
type Options struct {
	// Slots is the number of slots; 0 is slot.DefaultCount. It must be valid.
	Slots slot.Count
	// Key is the part of an object that is hashed; KeyUnknown is KeyName, and KeyUID with ShardSelector.
	Key slot.Key
	// Mode is how objects are delivered; ModeUnknown is Filter. It must go with the key.
	Mode Mode
	// Label is true if objects should carry the labels of SlotLabel although they are delivered in another way; see
	// Roles.Stamp.
	Label bool
}

// Roles are the kinds that were declared as primary or owned. Create them with New. All methods may be called
// concurrently.
type Roles struct {
	slots slot.Count
	key   slot.Key
	mode  Mode
	label bool

	clusterScoped sync.Map // kinds; see KeyOf

	mu    sync.Mutex
	roles map[schema.GroupKind]Role
	inUse map[use]int // informers that run
}

// use is what an informer asks for: objects of a kind, by their owners or as its role says.
type use struct {
	kind    schema.GroupKind
	byOwner bool
}

// New returns Roles without kinds. It panics if the options contradict each other.
func New(o Options) *Roles {
	if o.Slots == 0 {
		o.Slots = slot.DefaultCount
	}
	if o.Mode == ModeUnknown {
		o.Mode = Filter
	}
	if o.Key == slot.KeyUnknown {
		o.Key = slot.KeyName
		if o.Mode == ShardSelector {
			o.Key = slot.KeyUID
		}
	}
	if err := o.Slots.Validate(); err != nil {
		panic(err)
	}
	if err := o.Mode.Fits(o.Key); err != nil {
		panic(err)
	}
	return &Roles{slots: o.Slots, key: o.Key, mode: o.Mode, label: o.Label, roles: map[schema.GroupKind]Role{},
		inUse: map[use]int{}}
}

// Shard declares a kind as primary: sharded by its own objects' keys. It must be called before an informer of the kind
// starts that is not one by owner. Afterwards it returns an error: a controller of that kind would miss events.
//
// A kind may be primary and owned. Then an object of it has two slots, and each role has its own informers.
func (s *Roles) Shard(kind schema.GroupKind) error {
	return s.change(kind, func(r *Role) error {
		if r.Primary {
			return nil
		}
		r.Primary = true
		return s.unused(kind, false)
	})
}

// Own declares a kind as owned. Objects whose controlling owner is of the owner's kind are sharded by that owner's key;
// others are not delivered, except for orphans after AddOrphans. The owner's kind should be primary; namespaced says
// whether it is namespaced. A kind may have several kinds of owners. Own returns false and changes nothing if an
// informer that it would affect runs already.
func (s *Roles) Own(kind, owner schema.GroupKind, namespaced bool) bool {
	err := s.change(kind, func(r *Role) error {
		if err := s.unusedByOwner(kind, *r); err != nil {
			return err
		}
		owners := maps.Clone(r.Owners)
		if owners == nil {
			owners = map[schema.GroupKind]bool{}
		}
		owners[owner] = namespaced
		r.Owners = owners
		return nil
	})
	if err == nil && !namespaced {
		s.ClusterScoped(owner)
	}
	return err == nil
}

// Disown reverts Own: informers of the kind that have not started will hold all objects, or what Shard says. It returns
// an error if an affected informer runs.
func (s *Roles) Disown(kind schema.GroupKind) error {
	return s.change(kind, func(r *Role) error {
		if !r.Owned() {
			return nil
		}
		err := s.unusedByOwner(kind, *r)
		r.Owners, r.Orphans = nil, false
		return err
	})
}

// AddOrphans has the informers of an owned kind hold orphans as well, on every member. It returns an error if Own was
// not called for the kind, if an informer of it runs, or if there are slot.MaxCount slots.
func (s *Roles) AddOrphans(kind schema.GroupKind) error {
	return s.change(kind, func(r *Role) error {
		switch {
		case r.Orphans:
			return nil
		case !r.Owned():
			return fmt.Errorf("kind %s: orphans are delivered of kinds that are owned only", kind)
		case s.slots >= slot.MaxCount:
			return fmt.Errorf("kind %s: orphans take a slot beside the rota's %d: use at most %d slots, or leave orphans out",
				kind, s.slots, slot.MaxCount/2)
		}
		r.Orphans = true
		return s.unusedByOwner(kind, *r)
	})
}

// change changes the role of a kind, unless by returns an error.
func (s *Roles) change(kind schema.GroupKind, by func(*Role) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.roles[kind]
	if err := by(&r); err != nil {
		return err
	}
	if r.Primary || r.Owned() {
		s.roles[kind] = r
	} else {
		delete(s.roles, kind)
	}
	return nil
}

// unusedByOwner returns an error if an informer runs that holds objects of a kind by their owners, or would do so
// because of the kind's role. s.mu is held.
func (s *Roles) unusedByOwner(kind schema.GroupKind, r Role) error {
	if err := s.unused(kind, true); err != nil || r.Primary {
		return err
	}
	return s.unused(kind, false)
}

// unused returns an error if an informer of that use runs: its role cannot change any more. s.mu is held.
func (s *Roles) unused(kind schema.GroupKind, byOwner bool) error {
	if s.inUse[use{kind, byOwner}] == 0 {
		return nil
	}
	return fmt.Errorf("kind %s: cannot be sharded in another way any more, an informer of it is already running: "+
		"set up the controllers of sharded kinds before the manager starts, or with JoinAfter of the rota.Rota this one "+
		"before others that use the kind", kind)
}

// Use returns the part of the kind's role that an informer has which starts now, and holds that part in place until
// Disuse is called with the same arguments.
func (s *Roles) Use(kind schema.GroupKind, byOwner bool) Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse[use{kind, byOwner}]++
	return s.roles[kind].part(byOwner)
}

// Disuse reverts a call of Use.
func (s *Roles) Disuse(kind schema.GroupKind, byOwner bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse[use{kind, byOwner}]--
}

// Role returns the role of a kind.
func (s *Roles) Role(kind schema.GroupKind) Role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roles[kind]
}

// Sharded reports whether the kind is declared as primary.
func (s *Roles) Sharded(kind schema.GroupKind) bool { return s.Role(kind).Primary }

// Owned reports whether the kind is declared as owned.
func (s *Roles) Owned(kind schema.GroupKind) bool { return s.Role(kind).Owned() }

// Owners returns the kinds of the owners by which a kind is sharded, and whether each is namespaced. It returns nil for
// a kind that is sharded by its own key, even if it is owned as well. The caller must not change the map.
func (s *Roles) Owners(kind schema.GroupKind) map[schema.GroupKind]bool {
	r := s.Role(kind)
	if r.Primary {
		return nil
	}
	return r.Owners
}

// Kinds returns the kinds that are declared as primary or owned, in order.
func (s *Roles) Kinds() []schema.GroupKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.roles), func(a, b schema.GroupKind) int {
		return strings.Compare(a.String(), b.String())
	})
}

// ClusterScoped notes that objects of a kind have no namespace.
func (s *Roles) ClusterScoped(kind schema.GroupKind) { s.clusterScoped.Store(kind, true) }

// KeyOf returns the name by which an object is hashed and is found in a store. Callers often pass a namespace for an
// object without one, such as the namespace of an object that refers to it. The API server and controller-runtime's
// caches accept such names.
func (s *Roles) KeyOf(kind schema.GroupKind, name types.NamespacedName) types.NamespacedName {
	if name.Namespace == "" {
		return name
	}
	if _, is := s.clusterScoped.Load(kind); is {
		name.Namespace = ""
	}
	return name
}

// Key returns what of an object is hashed.
func (s *Roles) Key() slot.Key { return s.key }

// SlotCount returns the number of slots.
func (s *Roles) SlotCount() slot.Count { return s.slots }

// Delivery returns how objects of primary kinds are delivered.
func (s *Roles) Delivery() Mode { return s.mode }

// Slot returns the slot of an object by its own key. uid is used with KeyUID only.
func (s *Roles) Slot(namespace, name, uid string) slot.Slot {
	return s.slots.Of(s.key.Hash(namespace, name, uid))
}

// OrphanSlot is the slot of the orphans, in informers that hold them: one beyond the rota's.
func (s *Roles) OrphanSlot() slot.Slot {
	return slot.Slot(s.slots) // below slot.MaxCount: see AddOrphans
}

// SlotOf returns the slot of an object: by its own key for a primary kind, by its controlling owner's for one that is
// only owned. It returns false if the kind is not sharded, or if the object has no controlling owner of a declared
// kind.
func (s *Roles) SlotOf(kind schema.GroupKind, obj metav1.Object) (slot.Slot, bool) {
	for _, part := range s.Role(kind).Parts() {
		n, _, ok := s.SlotBy(kind, part, obj)
		return n, ok
	}
	return 0, false
}

// OwnerSlotOf returns the slot of an object by its controlling owner. ok is false if the kind is not owned or the
// object has no such owner.
func (s *Roles) OwnerSlotOf(kind schema.GroupKind, obj metav1.Object) (n slot.Slot, ok bool) {
	r := s.Role(kind)
	if !r.Owned() {
		return 0, false
	}
	n, _, ok = s.SlotBy(kind, r.part(true), obj)
	return n, ok
}

// Slots returns the slots of an object, each once: first the slot that SlotOf returns, and then, for a kind that is
// primary and owned, its controlling owner's slot.
func (s *Roles) Slots(kind schema.GroupKind, obj metav1.Object) []slot.Slot {
	var out []slot.Slot
	for _, part := range s.Role(kind).Parts() {
		if n, _, ok := s.SlotBy(kind, part, obj); ok && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
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
