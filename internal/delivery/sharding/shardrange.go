package sharding

import (
	"fmt"
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rota-dev/rota/slot"
)

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
