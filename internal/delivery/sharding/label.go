package sharding

import (
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/slot"
)

// HashLabel returns the label by which SlotLabel selects the objects of a primary kind; "" for key UID. The label's
// value is LabelValue of the hash of the object's key.
//
// Every key and every kind has its own label. So rotas with different keys do not touch each other's labels.
// Labels that an operator copies from an object to one of another kind, such as from a parent to its children, mean
// nothing there.
func HashLabel(key slot.Key, kind schema.GroupKind) string {
	switch key {
	case slot.KeyName:
		return labelOf("hash", kind)
	case slot.KeyNamespace:
		return labelOf("namespace-hash", kind)
	default:
		return ""
	}
}

// OwnerLabel returns the label by which SlotLabel and ShardSelector select the objects of an owned kind. Its value is
// LabelValue of the hash of the key of the object's controlling owner.
func OwnerLabel(key slot.Key, kind schema.GroupKind) string {
	switch key {
	case slot.KeyName:
		return labelOf("owner-hash", kind)
	case slot.KeyNamespace:
		return labelOf("owner-namespace-hash", kind)
	case slot.KeyUID:
		return labelOf("owner-uid-hash", kind)
	default:
		return ""
	}
}

// labelOf returns a label of three parts: what, the kind, and six hexadecimal digits. The digits distinguish kinds of
// one name in several groups, and kinds whose names are cut.
func labelOf(what string, kind schema.GroupKind) string {
	const longest = 63 // of the part behind the domain
	lower := strings.ToLower(kind.Kind)
	digits := fmt.Sprintf("-%06x", slot.HashName(kind.Group, lower)>>40)
	name := what + "-" + lower
	return names.Prefix + "/" + name[:min(len(name), longest-len(digits))] + digits
}

const (
	labelValues = slot.MaxCount
	// maxValues is how many values a selector may name. The API server compares them one by one with every object: 1,024
	// take about 3 µs per object. They take 7 KB of the URL, and some proxies allow 8 KB.
	maxValues = 1024
)

// LabelValue returns the value of HashLabel and OwnerLabel for the hash of a key: its top 12 bits in decimal, 0 to
// 4095. It depends neither on members nor on the number of slots. So it is written once in an object's life, and all
// rotas with the same key share it.
func LabelValue(hash uint64) string { return slot.Count(labelValues).Of(hash).String() }

// JoinSelectors returns a label selector for the objects that match all of the selectors. An empty selector matches
// everything. A ListerWatcher that has its own label selector must set ListOptions.LabelSelector to both, joined:
// the informer's selector is in the options.
func JoinSelectors(selectors ...string) string {
	var out []string
	for _, s := range selectors {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return strings.Join(out, ",")
}

// labelScope asks for the values of a label.
type labelScope struct {
	label string
	slots slot.Count
	// hash is the hash of the key by which an object is sharded; its top bits are the label's value. It returns false if
	// there is no key.
	hash func(metav1.Object) (uint64, bool)
}

func (l labelScope) Leaves() bool { return true }

func (l labelScope) Right(obj metav1.Object) bool {
	hash, ok := l.hash(obj)
	return !ok || obj.GetLabels()[l.label] == LabelValue(hash)
}

func (l labelScope) Narrow(req *Request, slots slot.Set) slot.Set {
	selector, asked := l.selector(slots)
	req.LabelSelector = JoinSelectors(req.LabelSelector, selector)
	return asked
}

// selector returns a label selector for the slots, and the slots that it selects, which may be more.
//
// Bounds are the cheapest for the API server. Unwanted values within the bounds are excluded. If it is shorter to name
// the wanted values, the selector names those instead.
func (l labelScope) selector(slots slot.Set) (string, slot.Set) {
	width := labelValues / int(l.slots)
	ranges := slots.Ranges()
	if len(ranges) == 0 {
		return fmt.Sprintf("%s>%d", l.label, labelValues-1), slots
	}
	hull := slot.SetOf(slot.Range{First: ranges[0].First, Last: ranges[len(ranges)-1].Last})
	if gaps := hull.Minus(slots); slots.Len() <= gaps.Len() && slots.Len()*width <= maxValues {
		return fmt.Sprintf("%s in (%s)", l.label, values(slots, width)), slots
	}
	for hull.Len()-slots.Len() > maxValues/width {
		n := len(slots.Ranges()) - 1
		slots = bridge(slots, n)
	}
	var terms []string
	if first := int(ranges[0].First) * width; first > 0 {
		terms = append(terms, fmt.Sprintf("%s>%d", l.label, first-1))
	}
	if end := (int(ranges[len(ranges)-1].Last) + 1) * width; end < labelValues {
		terms = append(terms, fmt.Sprintf("%s<%d", l.label, end))
	}
	if len(terms) == 0 {
		// Without this term, an object that loses its label would go unnoticed once the member asks for fewer slots.
		terms = append(terms, l.label)
	}
	if gaps := hull.Minus(slots); !gaps.Empty() {
		terms = append(terms, fmt.Sprintf("%s notin (%s)", l.label, values(gaps, width)))
	}
	return strings.Join(terms, ","), slots
}

// ExactSelector returns a label selector for the objects in some of the slots, and for no others. It uses only in,
// notin and existence, which all parsers of selectors know. set must not be empty.
func ExactSelector(label string, set slot.Set, slots slot.Count) string {
	width := labelValues / int(slots)
	others := slots.All().Minus(set)
	switch {
	case others.Empty():
		return label
	case others.Len() < set.Len():
		return fmt.Sprintf("%s,%s notin (%s)", label, label, values(others, width))
	default:
		return fmt.Sprintf("%s in (%s)", label, values(set, width))
	}
}

// values lists the label's values of the slots.
func values(slots slot.Set, width int) string {
	var b strings.Builder
	for i, n := range slots.Slots() {
		for v := range width {
			if i+v > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Itoa(int(n)*width + v))
		}
	}
	return b.String()
}

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
