package feed

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// Digest returns the digests of the slots for all sharded kinds whose informers run. For a kind that is primary and
// owned it uses the primary role. Slots without objects are left out.
//
// A digest must show what the store holds, not what was sent to it. So Digest reads the store for slots in which
// objects came or went since the last call, and for all slots as often as that takes at most 1/100 of the time. For a
// kind with several informers it reads all stores each time.
func (s *Reports) Digest(set slot.Set) sharding.Digests {
	of := map[schema.GroupKind][]*Informer{}
	for _, inf := range s.counted() {
		of[inf.Kind] = append(of[inf.Kind], inf)
	}
	out := sharding.Digests{}
	slots := set.Slots()
	for kind, informers := range of {
		informers[0].sums.age()
		digests := map[slot.Slot]sharding.Digest{}
		for _, n := range slots {
			var d sharding.Digest
			if len(informers) == 1 {
				d = informers[0].digest(n)
			} else {
				d = s.digestOf(n, informers...)
			}
			if d != (sharding.Digest{}) {
				digests[n] = d
			}
		}
		out[kind] = digests
	}
	return out
}

// counted returns the informers whose objects digests count.
func (s *Reports) counted() []*Informer {
	return slices.DeleteFunc(s.Active(), func(inf *Informer) bool { return inf.Role.Owned() && s.Sharded(inf.Kind) })
}

// digestOf returns the digest of a slot from the stores of some informers of a kind. An object in several stores counts
// once.
func (c *Common) digestOf(n slot.Slot, informers ...*Informer) sharding.Digest {
	var d sharding.Digest
	var seen map[uint64]struct{}
	if len(informers) > 1 {
		seen = map[uint64]struct{}{}
	}
	for _, inf := range informers {
		for _, obj := range inf.inSlot(n) {
			about, err := meta.Accessor(obj)
			if err != nil {
				continue
			}
			hash := sharding.DigestHash(c.Key(), about)
			if _, again := seen[hash]; again {
				continue
			}
			if seen != nil {
				seen[hash] = struct{}{}
			}
			d = d.With(hash)
		}
	}
	return d
}

// sums are the digests of an informer's slots. A slot's digest is known until an object comes or goes there. The store
// changes before touched is called. So a read that starts after known was set misses no change that touched has
// reported before.
type sums struct {
	reading sync.Mutex // held by one reader at a time

	mu     sync.Mutex
	known  []bool
	digest []sharding.Digest
	// begun is when known was last cleared; took is the time spent on reading stores since.
	begun time.Time
	took  time.Duration
}

// readShare bounds the cost of reading all stores again: that is done once readShare times as long has passed as the
// last reads took.
const readShare = 100

// age forgets all digests when it is time to read all slots again.
func (s *sums) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.begun) >= readShare*s.took {
		s.begun, s.took = now, 0
		clear(s.known)
	}
}

// touched notes that objects came to slots of the store or left them.
func (s *sums) touched(slots ...slot.Slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range slots {
		if int(n) < len(s.known) { // the orphans' slot is not counted
			s.known[n] = false
		}
	}
}

// touchedAll is touched for a change whose slot is not known.
func (s *sums) touchedAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.known)
}

// digest returns the digest of a slot in the informer's store.
func (i *Informer) digest(n slot.Slot) sharding.Digest {
	s := &i.sums
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	if s.known == nil {
		s.known, s.digest = make([]bool, i.share.SlotCount()), make([]sharding.Digest, i.share.SlotCount())
	}
	if s.known[n] {
		defer s.mu.Unlock()
		return s.digest[n]
	}
	s.known[n] = true // before the read: a change during it makes the slot unknown again
	s.mu.Unlock()
	begun := time.Now()
	d := i.share.digestOf(n, i)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.digest[n] = d
	s.took += time.Since(begun)
	return d
}

// Census lists everything that the informers select and returns the digests of all slots: what all members together
// should hold. It covers the kinds that Digest does, and keeps one page of a list in memory at a time. Kinds that are
// not served are empty. Kinds that cannot be listed are missing from digests and are in failed. Objects that a user's
// selectors leave out do not count. The error is ctx's cause, if ctx ends.
func (s *Reports) Census(ctx context.Context) (
	digests sharding.Digests, failed map[schema.GroupKind]error, err error,
) {
	out := sharding.Digests{}
	failed = map[schema.GroupKind]error{}
	seen := map[schema.GroupKind]map[uint64]struct{}{}
	for _, inf := range s.counted() {
		if out[inf.Kind] == nil {
			out[inf.Kind], seen[inf.Kind] = map[slot.Slot]sharding.Digest{}, map[uint64]struct{}{}
		}
		if err := inf.count(ctx, out[inf.Kind], seen[inf.Kind]); err != nil && !NotServed(err) {
			failed[inf.Kind] = err
		}
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
	}
	for kind := range failed {
		delete(out, kind)
	}
	return out, failed, nil
}

func (i *Informer) count(ctx context.Context, digests map[slot.Slot]sharding.Digest, seen map[uint64]struct{}) error {
	_, err := i.Source.eachListed(ctx, censusPause, func(obj runtime.Object) error {
		about, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		n, _, ok := i.SlotOf(obj)
		if !ok || i.Role.Adopts(about) {
			return nil // orphans belong to no member
		}
		hash := sharding.DigestHash(i.share.Key(), about)
		if _, again := seen[hash]; !again {
			seen[hash] = struct{}{}
			digests[n] = digests[n].With(hash)
		}
		return nil
	})
	return err
}

// censusPause is the pause between two pages of a census, so that a census takes a small part of the API server's time.
const censusPause = 20 * time.Millisecond
