package delivery

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// with returns the digest with one more object.
func (d Digest) with(hash uint64) Digest { return Digest{d.Objects + 1, d.Hashes ^ hash} }

// Count adds an object of a sharded kind to the digests of its kind, where it is in a slot. No object must be counted twice.
func (s *Share) Count(kind schema.GroupKind, obj metav1.Object, digests map[slot.Slot]Digest) {
	if n, ok := s.SlotOf(kind, obj); ok {
		digests[n] = digests[n].with(s.digestHash(obj))
	}
}

// digestHash returns the hash by which an object counts in a digest.
func (s *Share) digestHash(obj metav1.Object) uint64 {
	key := s.key
	if key == slot.KeyNamespace {
		key = slot.KeyName // or all objects of a namespace would cancel each other out
	}
	return key.Hash(obj.GetNamespace(), obj.GetName(), string(obj.GetUID()))
}

// Digest returns the digests of the slots, of all sharded kinds whose informers run; where a kind is primary and owned, those
// of its primary role. Slots without objects are left out. It reads the stores: the cost is that of the objects in the slots.
func (s *Share) Digest(set slot.Set) map[schema.GroupKind]map[slot.Slot]Digest {
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
				hash := s.digestHash(about)
				if _, again := seen[inf.kind][hash]; again {
					continue // several informers of the kind have it
				}
				seen[inf.kind][hash] = struct{}{}
				out[inf.kind][n] = out[inf.kind][n].with(hash)
			}
		}
	}
	return out
}
