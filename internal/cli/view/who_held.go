package view

import (
	"fmt"
	"math/bits"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
)

// listed are the objects that exist of a kind in some slots.
type listed struct {
	objects []listedObject
	// not says why they were not listed; empty: all were.
	not string
}

// listedObject is an object, with the hash by which it counts in a digest.
type listedObject struct {
	slot slot.Slot
	hash uint64
	path string
}

const (
	// maxUnknowns is up to how many objects the sum of some of their hashes tells which they are. The hashes have 64 bits:
	// that a wrong answer fits is less likely than 1 in 2^24.
	maxUnknowns = 40
	// maxPaths is how many objects are named.
	maxPaths = 5
)

// judgeHeld says whether the owner of the slot holds the object: by its report, which has the number of objects in the
// slot and the sum of their hashes, and by the objects that exist.
func (r *Rota) judgeHeld(w *Who, about subject, p place, report *coverage.Report, exist listed) {
	group := groupOf(p.slot, report.Fold)
	held := report.Digests[about.kind][group.First]
	period := coverage.BoundsBy([]*coverage.Report{report}).Stale / 2
	what := "slot " + group.String()
	if group.Len() > 1 {
		what = "slots " + group.String()
	}
	switch {
	case !report.Open.Has(p.slot):
		w.Evidence = fmt.Sprintf("the last report of %s is not about slot %d", w.Member, p.slot)
		return
	case r.At.Sub(about.object.CreationTimestamp.Time) < period:
		w.Evidence = fmt.Sprintf("it is younger than %v, and may be newer than the report of %s", period, w.Member)
		return
	case held.Objects == 0:
		w.Held = ptr.To(false)
		w.Evidence = fmt.Sprintf("the report of %s has no object of the kind in %s", w.Member, what)
		return
	case exist.not != "":
		w.Evidence = exist.not
		return
	}
	self := sharding.DigestHash(p.roles.Key(), about.object)
	var hashes []uint64
	var paths []string
	index := -1
	for _, o := range exist.objects {
		if !group.Contains(o.slot) || !report.Open.Has(o.slot) {
			continue
		}
		if o.hash == self {
			index = len(hashes)
		}
		hashes, paths = append(hashes, o.hash), append(paths, o.path)
	}
	chosen, ok := summands(hashes, held)
	if index < 0 || !ok {
		w.Evidence = fmt.Sprintf("there are %d objects of the kind in %s, and %s reported others, %d, a few seconds ago: "+
			"ask again, or run `rota verify`", len(hashes), what, w.Member, held.Objects)
		return
	}
	var have []string
	for i, in := range chosen {
		if in {
			have = append(have, paths[i])
		}
	}
	w.Held = ptr.To(chosen[index])
	w.Evidence = fmt.Sprintf("by its report %s holds all %d objects of the kind in %s", w.Member, len(paths), what)
	if len(paths) == 1 {
		w.Evidence = fmt.Sprintf("by its report %s holds it; no other object of the kind is in %s", w.Member, what)
	}
	if len(have) < len(paths) {
		w.Evidence = fmt.Sprintf("of the %d objects of the kind in %s %s holds %d by its report: %s", len(paths), what,
			w.Member, len(have), strings.Join(have[:min(len(have), maxPaths)], ", "))
		if len(have) > maxPaths {
			w.Evidence += fmt.Sprintf(" and %d more", len(have)-maxPaths)
		}
	}
}

// groupOf returns the slots that a report sums up together with slot n.
func groupOf(n slot.Slot, fold int) slot.Range {
	size := slot.Slot(max(1, fold)) // a power of two up to slot.MaxCount: see coverage.Decode
	first := n &^ (size - 1)
	return slot.Range{First: first, Last: first + size - 1}
}

// summands returns which of the hashes make up the digest. ok says that there is one answer. Up to maxUnknowns hashes
// are almost certainly linearly independent over GF(2). Then the XOR of some of them tells which these are. With more
// of them it finds out whether it is all.
func summands(hashes []uint64, sum sharding.Digest) (chosen []bool, ok bool) {
	chosen = make([]bool, len(hashes))
	all := sharding.Digest{}
	for i, h := range hashes {
		chosen[i] = true
		all = sharding.Digest{Objects: all.Objects + 1, Hashes: all.Hashes ^ h}
	}
	if all == sum {
		return chosen, true
	}
	if len(hashes) > maxUnknowns {
		return nil, false
	}
	// Gaussian elimination. basis has a vector for each highest bit, and the hashes of which it is the sum.
	var basis [64]struct{ vector, of uint64 }
	reduce := func(v, of uint64) (rest, sumOf uint64) {
		for v != 0 {
			b := basis[bits.Len64(v)-1]
			if b.vector == 0 {
				break
			}
			v, of = v^b.vector, of^b.of
		}
		return v, of
	}
	for i, h := range hashes {
		v, of := reduce(h, 1<<i)
		if v == 0 {
			return nil, false
		}
		basis[bits.Len64(v)-1] = struct{ vector, of uint64 }{v, of}
	}
	rest, of := reduce(sum.Hashes, 0)
	if rest != 0 || bits.OnesCount64(of) != sum.Objects {
		return nil, false
	}
	for i := range chosen {
		chosen[i] = of>>i&1 == 1
	}
	return chosen, true
}
