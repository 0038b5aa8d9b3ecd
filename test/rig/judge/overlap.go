package judge

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/test/rig/journal"
)

// Overlap is a pair of reconciles of one namespace/name by two processes at the same time.
type Overlap struct{ A, B journal.Reconcile }

// Overlaps returns all such pairs. ended tells when a process was gone: a reconcile without an end record ended then,
// or did not end, if ended does not have the process. With byUID, namesakes are different objects, and a reconcile that
// found no object is about none.
func Overlaps(all []journal.Reconcile, ended map[string]time.Duration, byUID bool) []Overlap {
	type object struct {
		types.NamespacedName
		uid string
	}
	byKey := map[object][]journal.Reconcile{}
	for _, r := range all {
		if r.End == 0 {
			r.End = never
			if at, ok := ended[r.Pod]; ok {
				r.End = at
			}
		}
		o := object{NamespacedName: r.Key}
		if byUID {
			if o.uid = r.UID; o.uid == "" {
				continue
			}
		}
		byKey[o] = append(byKey[o], r)
	}
	var out []Overlap
	for _, list := range byKey {
		out = append(out, overlapping(list, func(a, b journal.Reconcile) bool { return a.Pod != b.Pod })...)
	}
	sortOverlaps(out)
	return out
}

// overlapping returns the pairs of reconciles that overlap in time and match.
func overlapping(list []journal.Reconcile, match func(a, b journal.Reconcile) bool) (out []Overlap) {
	slices.SortFunc(list, func(a, b journal.Reconcile) int { return cmp.Compare(a.Start, b.Start) })
	var open []journal.Reconcile // those that may overlap with what follows
	for _, r := range list {
		open = slices.DeleteFunc(open, func(o journal.Reconcile) bool { return o.End <= r.Start })
		for _, o := range open {
			if match(o, r) {
				out = append(out, Overlap{o, r})
			}
		}
		open = append(open, r)
	}
	return out
}

func sortOverlaps(all []Overlap) {
	slices.SortFunc(all, func(a, b Overlap) int { return cmp.Compare(a.B.Start, b.B.Start) })
}

const never = time.Duration(1<<63 - 1)
