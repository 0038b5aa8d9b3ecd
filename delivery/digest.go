package delivery

import (
	"sync"
	"time"

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
// of its primary role. Slots without objects are left out. It reads the stores of the slots in which objects came or went
// since the last call, and all of them again as often as a hundredth of the time allows: a digest has to show what a store
// holds, not what it was told. Of a kind with several informers it reads all stores each time.
func (s *Share) Digest(set slot.Set) map[schema.GroupKind]map[slot.Slot]Digest {
	of := map[schema.GroupKind][]*informer{}
	for _, inf := range s.active() {
		if !inf.owned() || !s.Sharded(inf.kind) {
			of[inf.kind] = append(of[inf.kind], inf)
		}
	}
	out := map[schema.GroupKind]map[slot.Slot]Digest{}
	slots := set.Slots()
	for kind, informers := range of {
		informers[0].sums.age()
		digests := map[slot.Slot]Digest{}
		for _, n := range slots {
			var d Digest
			if len(informers) == 1 {
				d = informers[0].digest(n)
			} else {
				d = s.digestOf(n, informers...)
			}
			if d != (Digest{}) {
				digests[n] = d
			}
		}
		out[kind] = digests
	}
	return out
}

// digestOf returns the digest of a slot from the stores of some informers of a kind. Objects that several of them have count once.
func (s *Share) digestOf(n slot.Slot, informers ...*informer) Digest {
	var d Digest
	var seen map[uint64]struct{}
	if len(informers) > 1 {
		seen = map[uint64]struct{}{}
	}
	for _, inf := range informers {
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
			if _, again := seen[hash]; again {
				continue
			}
			if seen != nil {
				seen[hash] = struct{}{}
			}
			d = d.with(hash)
		}
	}
	return d
}

// sums are the digests of an informer's slots. A slot's is known until an object comes or goes there; the store changes before touched is
// called, so that what is read after a slot was found unknown misses nothing of which touched has told.
type sums struct {
	reading sync.Mutex // held by one reader at a time

	mu     sync.Mutex
	known  []bool
	digest []Digest
	// begun is when all slots were last unknown, took how long reading them has taken since.
	begun time.Time
	took  time.Duration
}

// readShare is by how much more time has to pass than reading the stores took, before all of them are read again.
const readShare = 100

// age forgets all digests once it is time to read all slots again.
func (s *sums) age() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.begun) >= readShare*s.took {
		s.begun, s.took = now, 0
		clear(s.known)
	}
}

// digest returns the digest of a slot in the informer's store.
func (i *informer) digest(n slot.Slot) Digest {
	s := &i.sums
	s.reading.Lock()
	defer s.reading.Unlock()
	s.mu.Lock()
	if s.known == nil {
		s.known, s.digest = make([]bool, i.share.slots), make([]Digest, i.share.slots)
	}
	if s.known[n] {
		defer s.mu.Unlock()
		return s.digest[n]
	}
	s.known[n] = true // until something happens from now on
	s.mu.Unlock()
	begun := time.Now()
	d := i.share.digestOf(n, i)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.digest[n] = d
	s.took += time.Since(begun)
	return d
}

// touched notes that objects have come to slots of the store, or gone.
func (i *informer) touched(slots ...slot.Slot) {
	i.sums.mu.Lock()
	defer i.sums.mu.Unlock()
	for _, n := range slots {
		if int(n) < len(i.sums.known) { // orphans are in none
			i.sums.known[n] = false
		}
	}
}

// touchedAll is touched for a change of which it is not known where it was.
func (i *informer) touchedAll() {
	i.sums.mu.Lock()
	defer i.sums.mu.Unlock()
	clear(i.sums.known)
}

// touch notes what a handler that sees everything is told: an object came, or went, or another one has taken its place.
func (h *handler) touch(before, after any) {
	i := h.informer
	if h.user != nil || !i.source.sharded() {
		return
	}
	from, _, was := i.slotOf(before)
	to, _, is := i.slotOf(after)
	if was && is && from == to && (i.share.key != slot.KeyUID || sameUID(before, after)) {
		return // the same object
	}
	if was {
		i.touched(from)
	}
	if is {
		i.touched(to)
	}
}

func sameUID(a, b any) bool {
	x, errX := meta.Accessor(a)
	y, errY := meta.Accessor(b)
	return errX == nil && errY == nil && x.GetUID() == y.GetUID()
}
