package sharding

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Stamp returns the label, and its value, that an object of the kind should carry under this mode of delivery.
// Clients that create or change objects write it with them. If it is missing or wrong, the labeller repairs it.
//
// Objects of primary kinds carry HashLabel under SlotLabel. Objects of owned kinds carry OwnerLabel under SlotLabel and
// ShardSelector if they have a controlling owner of a declared kind; the label changes when the owner does. ok is false
// for all others: nothing selects them by a label, and a label on them does no harm.
//
// An object of a kind that is primary and owned may need two labels. Stamp returns the first; see Stamps.
func (s *Roles) Stamp(kind schema.GroupKind, obj metav1.Object) (label, value string, ok bool) {
	for _, part := range s.Role(kind).Parts() {
		if label, value, ok = s.stampBy(kind, part, obj); ok {
			return label, value, true
		}
	}
	return "", "", false
}

// Stamps returns all labels that an object should carry, with their values, or nil if there are none; see Stamp.
func (s *Roles) Stamps(kind schema.GroupKind, obj metav1.Object) map[string]string {
	var out map[string]string
	for _, part := range s.Role(kind).Parts() {
		if label, value, ok := s.stampBy(kind, part, obj); ok {
			if out == nil {
				out = map[string]string{}
			}
			out[label] = value
		}
	}
	return out
}

// stampBy returns the label of one part of the kind's role.
func (s *Roles) stampBy(kind schema.GroupKind, part Role, obj metav1.Object) (label, value string, ok bool) {
	if label = s.labelBy(kind, part); label == "" {
		return "", "", false
	}
	if part.Primary && obj.GetName() == "" && (s.key == slot.KeyName || obj.GetNamespace() == "") {
		return "", "", false // the API server generates the name
	}
	hash, _, ok := s.hashBy(kind, part, obj)
	if !ok {
		return "", "", false
	}
	return label, LabelValue(hash), true
}

// labelBy returns the label by which the objects of a kind are selected in a role, or "" if there is none.
func (s *Roles) labelBy(kind schema.GroupKind, part Role) string {
	switch {
	case (s.mode == SlotLabel || s.label) && part.Primary:
		return HashLabel(s.key, kind)
	case (s.mode == SlotLabel || s.mode == ShardSelector || s.label) && part.Owned() && !part.Orphans:
		return OwnerLabel(s.key, kind)
	default:
		return ""
	}
}

// Labels returns the labels that objects of the kind may have to carry under this mode of delivery: see Stamps.
func (s *Roles) Labels(kind schema.GroupKind) []string {
	var out []string
	for _, part := range s.Role(kind).Parts() {
		if label := s.labelBy(kind, part); label != "" {
			out = append(out, label)
		}
	}
	return out
}
