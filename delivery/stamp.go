package delivery

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Stamp returns the label that an object of the kind should carry under this share's kind of delivery, and its value. Whoever
// creates or changes objects writes it with them; where it is missing or wrong, somebody has to put it right.
//
// Objects of primary kinds carry HashLabel under SlotLabel. Objects of owned kinds carry OwnerLabel under SlotLabel
// and ShardSelector if they have a controlling owner of a kind declared; it changes when that owner does. ok is false for all
// others: nothing selects them by a label, and one that they have does no harm.
func (s *Share) Stamp(kind schema.GroupKind, obj metav1.Object) (label, value string, ok bool) {
	s.mu.Lock()
	r := s.roles[kind]
	s.mu.Unlock()
	switch {
	case s.delivery == SlotLabel && r.primary:
		label = HashLabel(s.key)
	case (s.delivery == SlotLabel || s.delivery == ShardSelector) && r.owners != nil:
		label = OwnerLabel(s.key)
	default:
		return "", "", false
	}
	hash, _, ok := s.hashBy(kind, r, obj)
	if !ok {
		return "", "", false
	}
	return label, LabelValue(hash), true
}
