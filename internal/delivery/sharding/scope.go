package sharding

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Request is a list or a watch. Its ShardSelector stands for the one of newer ListOptions.
type Request struct {
	metav1.ListOptions

	ShardSelector string
}

// Scope is how a delivery mode narrows requests. Every object that arrives is hashed and compared with the wanted
// slots, whatever the scope (rule R11).
type Scope interface {
	// Narrow restricts a list or a watch to the objects of the slots. It returns the slots that the request then selects,
	// which may be more.
	Narrow(req *Request, slots slot.Set) slot.Set
	// Right reports whether the scope selects an object for the slot that it is in. If not, the object came by chance, and
	// its next event may not come.
	Right(obj metav1.Object) bool
	// Leaves reports whether a DELETED may mean that an object left the selector.
	Leaves() bool
}

// Everything is all slots of any count.
var Everything = slot.SetOf(slot.Range{First: 0, Last: slot.MaxCount - 1})

// Whole asks for everything.
var Whole Scope = wholeScope{}

type wholeScope struct{}

func (wholeScope) Narrow(*Request, slot.Set) slot.Set { return Everything }
func (wholeScope) Right(metav1.Object) bool           { return true }
func (wholeScope) Leaves() bool                       { return false }

// Scope returns the scope of a part of a kind's role. All modes that select do it by a label for owned kinds: the API
// server does not hash anything of an owner.
func (s *Roles) Scope(kind schema.GroupKind, part Role) Scope {
	label := s.labelBy(kind, part)
	switch {
	case s.mode == ShardSelector && !part.Owned():
		return hashScope{slots: s.slots}
	case label != "" && (s.mode == SlotLabel || s.mode == ShardSelector):
		return labelScope{label: label, slots: s.slots, hash: func(obj metav1.Object) (uint64, bool) {
			hash, _, ok := s.hashBy(kind, part, obj)
			return hash, ok
		}}
	default: // labels may be written before they are asked for
		return Whole
	}
}

// bridge returns a superset of at most n ranges: it fills the smallest gaps.
func bridge(set slot.Set, n int) slot.Set {
	for {
		ranges := set.Ranges()
		if len(ranges) <= n {
			return set
		}
		// Fill all gaps of the smallest size that are needed at once: there are few sizes.
		smallest := slot.MaxCount
		for i := 1; i < len(ranges); i++ {
			smallest = min(smallest, int(ranges[i].First-ranges[i-1].Last))
		}
		excess := len(ranges) - n
		for i := 1; i < len(ranges) && excess > 0; i++ {
			if int(ranges[i].First-ranges[i-1].Last) == smallest {
				set.AddRange(slot.Range{First: ranges[i-1].Last, Last: ranges[i].First})
				excess--
			}
		}
	}
}

// maxRanges is how many ranges a shard selector may have: the API server compares them with every object.
const maxRanges = 32

// hashScope asks for ranges of the UID's hash, with Kubernetes' own shard selector. A UID never changes, so no object
// leaves such a selector. Whether the server honors the selector shows in what arrives.
type hashScope struct{ slots slot.Count }

func (hashScope) Right(metav1.Object) bool { return true }
func (hashScope) Leaves() bool             { return false }

func (s hashScope) Narrow(req *Request, slots slot.Set) slot.Set {
	slots = bridge(slots, maxRanges)
	if slots.Len() == int(s.slots) {
		return Everything
	}
	var ranges []string
	for _, r := range slots.Ranges() {
		start, _ := s.slots.Hashes(r.First)
		_, last := s.slots.Hashes(r.Last)
		ranges = append(ranges, ShardRange(start, last))
	}
	if len(ranges) == 0 {
		ranges = []string{ShardRange(0, 0)} // an empty range is refused
	}
	req.ShardSelector = strings.Join(ranges, " || ")
	return slots
}

// ShardRange returns a shard selector for the objects whose UID's hash is in the range, both ends included.
func ShardRange(first, last uint64) string {
	end := "0x10000000000000000"
	if last < math.MaxUint64 {
		end = fmt.Sprintf("0x%016x", last+1)
	}
	return fmt.Sprintf("shardRange(object.metadata.uid, '0x%016x', '%s')", first, end)
}

// Selectors are what a list or a watch of a sharded informer must select by.
type Selectors struct{ Label, Field string }

// Selection is what an informer asks for, whatever its slots: the objects of a namespace that its user's selectors
// select. An empty namespace stands for all.
type Selection struct {
	Namespace string
	Selectors
}

// Compare orders selections.
func (s Selection) Compare(other Selection) int {
	return cmp.Or(cmp.Compare(s.Label, other.Label), cmp.Compare(s.Field, other.Field),
		cmp.Compare(s.Namespace, other.Namespace))
}
