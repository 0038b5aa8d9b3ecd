package slot

import (
	"fmt"
	"math/bits"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Slot is the number of a slot. Hash slots are numbered from 0 to the rota's Count minus one. Duty slots follow,
// starting at Count.
type Slot uint16

const (
	// DefaultCount is the number of slots of a rota unless its options set another.
	DefaultCount = 256
	// MaxCount is the largest number of slots of a rota.
	MaxCount = 4096
	// MaxDuties is the largest number of duties of a rota. Each has a slot, numbered after the hash slots.
	MaxDuties = 512
	// limit is above the number of every slot.
	limit = MaxCount + MaxDuties
)

// Count is the number of slots of a rota: a power of two from 1 to MaxCount.
type Count int

// Validate returns an error if c is not a power of two or is out of range.
func (c Count) Validate() error {
	if c < 1 || c > MaxCount || c&(c-1) != 0 {
		return fmt.Errorf("slot count %d: must be a power of two from 1 to %d; the default is %d",
			int(c), MaxCount, DefaultCount)
	}
	return nil
}

// Of returns the slot of a hash: its top log2(c) bits. c must be valid.
func (c Count) Of(hash uint64) Slot {
	return Slot(hash >> c.shift())
}

// Hashes returns the first and last hash of a slot, both inclusive.
func (c Count) Hashes(s Slot) (first, last uint64) {
	shift := c.shift()
	first = uint64(s) << shift
	return first, first | (1<<shift - 1)
}

// shift is 64 for a count of 1; Go defines such shifts as 0.
func (c Count) shift() uint { return uint(64 - bits.TrailingZeros(uint(c))) }

// String returns the slot's number.
func (s Slot) String() string { return strconv.Itoa(int(s)) }

// Key selects the part of an object that is hashed. The zero value is KeyUnknown. Use KeyName unless you have a reason
// not to.
type Key uint8

const (
	// KeyUnknown is not a valid key: Hash panics, and Validate returns an error.
	KeyUnknown Key = iota
	// KeyName hashes "namespace/name", or "name" for cluster-scoped objects, with xxHash64. It does not depend on the
	// kind, so a request's slot follows from the request alone and a child's from its owner's name.
	KeyName
	// KeyNamespace hashes the namespace with xxHash64, so all objects of a namespace belong to one member. For
	// cluster-scoped objects it hashes the name, as KeyName does.
	KeyNamespace
	// KeyUID hashes metadata.uid with FNV-1a-64, the hash of Kubernetes' own shardSelector (KEP-5866).
	KeyUID
)

// ParseKey is the inverse of String.
func ParseKey(text string) (Key, error) {
	for k := KeyName; k <= KeyUID; k++ {
		if k.String() == text {
			return k, nil
		}
	}
	return KeyUnknown, fmt.Errorf("key %q: must be one of Name, Namespace, UID", text)
}

// String returns the key's name as used in the table.
func (k Key) String() string {
	switch k {
	case KeyName:
		return "Name"
	case KeyNamespace:
		return "Namespace"
	case KeyUID:
		return "UID"
	default:
		return "Unknown"
	}
}

// Hash returns the hash of an object by this key. KeyUID uses only uid. The other two use only namespace and name.
// namespace is empty for cluster-scoped objects.
func (k Key) Hash(namespace, name, uid string) uint64 {
	switch k {
	case KeyName:
		return HashName(namespace, name)
	case KeyNamespace:
		if namespace == "" {
			return xxhash.Sum64String(name)
		}
		return xxhash.Sum64String(namespace)
	case KeyUID:
		return HashUID(uid)
	default:
		panic("slot: Hash of KeyUnknown")
	}
}

// HashName returns the xxHash64 (seed 0) of "namespace/name", or of "name" if namespace is empty.
func HashName(namespace, name string) uint64 {
	if namespace == "" {
		return xxhash.Sum64String(name)
	}
	var stack [320]byte // longer than any namespace and name in Kubernetes
	return xxhash.Sum64(append(append(append(stack[:0], namespace...), '/'), name...))
}

// HashUID returns the FNV-1a-64 hash, as k8s.io/apimachinery/pkg/sharding.HashField computes it.
func HashUID(uid string) uint64 {
	const (
		offset = 14695981039346656037
		prime  = 1099511628211
	)
	h := uint64(offset)
	for i := range len(uid) {
		h ^= uint64(uid[i])
		h *= prime
	}
	return h
}
