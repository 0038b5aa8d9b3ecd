package sharding

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/slot"
)

// Digest sums up the objects of a kind in a slot (rule R14). If two digests are equal, they almost certainly come from
// the same set of names, or of UIDs with key UID.
type Digest struct {
	Objects int
	// Hashes is the XOR of the hashes of the objects' keys. With key Namespace it is the XOR of the hashes of their
	// names, as KeyName hashes them.
	Hashes uint64
}

// Digests are the slots' digests, by sharded kind.
type Digests map[schema.GroupKind]map[slot.Slot]Digest

// With returns the digest with one more object, of which hash is the DigestHash.
func (d Digest) With(hash uint64) Digest { return Digest{d.Objects + 1, d.Hashes ^ hash} }

// DigestHash returns the hash that represents an object in a digest, where objects are sharded by the key.
func DigestHash(key slot.Key, obj metav1.Object) uint64 {
	if key == slot.KeyNamespace {
		key = slot.KeyName // or all objects of a namespace would cancel each other out
	}
	return key.Hash(obj.GetNamespace(), obj.GetName(), string(obj.GetUID()))
}
