package delivery

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Digest sums up the objects of a kind in a slot (rule R14). Two that are equal almost certainly come from the same set
// of names, or of UIDs with key UID.
type Digest struct {
	Objects int
	// Hashes is the XOR of the keys' hashes; with key Namespace, of the names' by which KeyName hashes.
	Hashes uint64
}

// Digest returns the digests of the slots, of all sharded kinds whose informers run; where a kind is primary and owned, those
// of its primary role. Slots without objects are left out. It reads the stores: the cost is that of the objects in the slots.
func (s *Share) Digest(set slot.Set) map[schema.GroupKind]map[slot.Slot]Digest {
	key := s.key
	if key == slot.KeyNamespace {
		key = slot.KeyName // or all objects of a namespace would cancel each other out
	}
	out := map[schema.GroupKind]map[slot.Slot]Digest{}
	seen := map[schema.GroupKind]map[uint64]struct{}{}
	slots := set.Slots()
	for _, inf := range s.active() {
		if inf.owned() && s.Sharded(inf.kind) {
			continue
		}
		if out[inf.kind] == nil {
			out[inf.kind], seen[inf.kind] = map[slot.Slot]Digest{}, map[uint64]struct{}{}
		}
		for _, n := range slots {
			objects, err := inf.GetIndexer().ByIndex(slotIndex, slotNames[n])
			if err != nil {
				continue // the index is added before the informer runs
			}
			for _, obj := range objects {
				about, err := meta.Accessor(obj)
				if err != nil {
					continue
				}
				hash := key.Hash(about.GetNamespace(), about.GetName(), string(about.GetUID()))
				if _, again := seen[inf.kind][hash]; again {
					continue // several informers of the kind have it
				}
				seen[inf.kind][hash] = struct{}{}
				d := out[inf.kind][n]
				d.Objects++
				d.Hashes ^= hash
				out[inf.kind][n] = d
			}
		}
	}
	return out
}
