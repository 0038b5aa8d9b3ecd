package drainlabel

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// virtualNodes is how many places each shard has on the ring.
const virtualNodes = 100

// Ring maps keys to shards by consistent hashing. It is never changed.
type Ring struct {
	places []place
}

type place struct {
	hash  uint64
	shard string
}

// NewRing returns a ring of the shards.
func NewRing(shards ...string) Ring {
	var r Ring
	for _, shard := range shards {
		for i := range virtualNodes {
			r.places = append(r.places, place{xxhash.Sum64String(fmt.Sprintf("%s-%d", shard, i)), shard})
		}
	}
	slices.SortFunc(r.places, func(a, b place) int { return cmp.Compare(a.hash, b.hash) })
	return r
}

// Of returns the key's shard: the one whose place is the first at or after the key's hash. It is "" without shards.
func (r Ring) Of(key string) string {
	if len(r.places) == 0 {
		return ""
	}
	i, _ := slices.BinarySearchFunc(r.places, xxhash.Sum64String(key),
		func(p place, hash uint64) int { return cmp.Compare(p.hash, hash) })
	return r.places[i%len(r.places)].shard
}
