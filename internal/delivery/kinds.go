package delivery

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/slot"
)

// Kinds returns the kinds that are declared as primary or owned, in order.
func (s *Share) Kinds() []schema.GroupKind {
	s.mu.Lock()
	defer s.mu.Unlock()
	kinds := make([]schema.GroupKind, 0, len(s.roles))
	for kind := range s.roles {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

// Known returns the kinds that are declared as primary or owned, and those that a running informer of this share is of.
func (s *Share) Known() []schema.GroupKind {
	kinds := s.Kinds()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, inf := range slices.Concat(s.informers, s.besides) {
		if inf.running && !slices.Contains(kinds, inf.kind) {
			kinds = append(kinds, inf.kind)
		}
	}
	return kinds
}

// Knows reports whether a kind is among those of Known.
func (s *Share) Knows(kind schema.GroupKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, declared := s.roles[kind]
	return declared || s.runs(kind, func(*informer) bool { return true }) || s.runsBeside(kind)
}

// ClusterScoped notes that objects of a kind have no namespace.
func (s *Share) ClusterScoped(kind schema.GroupKind) { s.clusterScoped.Store(kind, true) }

// KeyOf returns the name by which an object is hashed and is found in a store. Callers often have one with a namespace
// for an object without, such as that of an object that refers to it. The API server and controller-runtime's caches
// take it all the same.
func (s *Share) KeyOf(kind schema.GroupKind, name types.NamespacedName) types.NamespacedName {
	if name.Namespace == "" {
		return name
	}
	if _, is := s.clusterScoped.Load(kind); is {
		name.Namespace = ""
	}
	return name
}

// Delivery returns how objects of primary kinds are delivered.
func (s *Share) Delivery() Mode {
	if s.delivery == ModeUnknown {
		return Filter
	}
	return s.delivery
}

// Owners returns the kinds of the owners by which a kind is sharded, and whether each is namespaced. It returns nil for
// a kind that is sharded by its own key, even if it is owned as well. The caller must not change the map.
func (s *Share) Owners(kind schema.GroupKind) map[schema.GroupKind]bool {
	r := s.role(kind)
	if r.primary {
		return nil
	}
	return r.owners
}

// OwnerSlotOf returns the slot of an object by its controlling owner. ok is false if the kind is not owned or the
// object has no such owner.
func (s *Share) OwnerSlotOf(kind schema.GroupKind, obj metav1.Object) (n slot.Slot, ok bool) {
	r := s.role(kind)
	if r.owners == nil {
		return 0, false
	}
	n, _, ok = s.slotBy(kind, role{owners: r.owners}, obj)
	return n, ok
}

// Labels returns the labels that objects of the kind may have to carry under this share's mode of delivery: see Stamps.
func (s *Share) Labels(kind schema.GroupKind) []string {
	var out []string
	for _, part := range s.role(kind).parts() {
		if label := s.labelBy(kind, part); label != "" {
			out = append(out, label)
		}
	}
	return out
}
