package sharding

import (
	"fmt"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	shardselector "k8s.io/apimachinery/pkg/sharding"

	"github.com/rota-dev/rota/slot"
)

// maxRanges is how many ranges a shard selector may have: the API server compares them with every object.
const maxRanges = 32

// hashScope asks for ranges of the UID's hash, with Kubernetes' own shard selector. A UID never changes, so no object
// leaves such a selector. Whether the server honors the selector shows in what arrives.
type hashScope struct{ slots slot.Count }

func (hashScope) Right(metav1.Object) bool { return true }
func (hashScope) Leaves() bool             { return false }

func (s hashScope) Narrow(opts *metav1.ListOptions, slots slot.Set) slot.Set {
	slots = bridge(slots, maxRanges)
	if slots.Len() == int(s.slots) {
		return Everything
	}
	var requirements []shardselector.ShardRangeRequirement
	add := func(start, end string) {
		requirements = append(requirements, shardselector.ShardRangeRequirement{Key: "object.metadata.uid", Start: start,
			End: end})
	}
	for _, r := range slots.Ranges() {
		start, _ := s.slots.Hashes(r.First)
		_, last := s.slots.Hashes(r.Last)
		end := "0x10000000000000000"
		if last < math.MaxUint64 {
			end = fmt.Sprintf("0x%016x", last+1)
		}
		add(fmt.Sprintf("0x%016x", start), end)
	}
	if len(requirements) == 0 {
		add(fmt.Sprintf("0x%016x", 0), fmt.Sprintf("0x%016x", 1)) // an empty range is refused
	}
	opts.ShardSelector = shardselector.NewSelector(requirements...).String()
	return slots
}
