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

// listed are the existing objects of a kind in some slots.
type listed struct {
	objects []listedObject
	// not is why they were not listed; it is empty if all were.
	not string
}

// listedObject is an object with the hash that it adds to a digest.
type listedObject struct {
	slot slot.Slot
	hash uint64
	path string
}

const (
	// maxUnknowns limits the objects among which summands searches. The hashes have 64 bits, so a wrong answer fits with a
	// probability below 1 in 2^24.
	maxUnknowns = 40
	// maxPaths limits the objects in the evidence.
	maxPaths = 5
)

// judgeHeld determines whether the slot's owner holds the object. It compares the number of objects and the sum of
// their hashes in the owner's report with the existing objects.
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
		w.Evidence = fmt.Sprintf("the last report of %s does not cover slot %d", w.Member, p.slot)
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
		w.Evidence = fmt.Sprintf("there are %d objects of the kind in %s, but %s reported %d different ones a few seconds "+
			"ago: try again, or run `rota verify`", len(hashes), what, w.Member, held.Objects)
		return
	}
	var have []string
	for i, in := range chosen {
		if in {
			have = append(have, paths[i])
		}
	}
	w.Held = ptr.To(chosen[index])
	w.Evidence = fmt.Sprintf("according to its report %s holds all %d objects of the kind in %s", w.Member, len(paths),
		what)
	if len(paths) == 1 {
		w.Evidence = fmt.Sprintf("according to its report %s holds it; no other object of the kind is in %s", w.Member, what)
	}
	if len(have) < len(paths) {
		w.Evidence = fmt.Sprintf("according to its report, of the %d objects of the kind in %s, %s holds %d: %s", len(paths),
			what,
			w.Member, len(have), strings.Join(have[:min(len(have), maxPaths)], ", "))
		if len(have) > maxPaths {
			w.Evidence += fmt.Sprintf(" and %d more", len(have)-maxPaths)
		}
	}
}

// groupOf returns the slots that share a digest with slot n in a report.
func groupOf(n slot.Slot, fold int) slot.Range {
	size := slot.Slot(max(1, fold)) // a power of two up to slot.MaxCount: see coverage.Decode
	first := n &^ (size - 1)
	return slot.Range{First: first, Last: first + size - 1}
}

// summands returns which of the hashes add up to the digest. ok is true if there is exactly one answer. Up to
// maxUnknowns hashes are almost certainly linearly independent over GF(2), so the XOR of a subset identifies the
// subset. With more hashes it only finds out whether all of them add up.
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
	// Gaussian elimination: basis has a vector for each highest bit, and the set of hashes that add up to it.
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
