package judge

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/test/rig/journal"
)

// Update is an update of an object that was accepted.
type Update struct {
	Key        types.NamespacedName
	UID        string
	Generation int64
	// Commit is when the response arrived.
	Commit time.Duration
}

// Deletion is of an object that did not come again under its name.
type Deletion struct {
	Site
	// Begun is when it was requested, Commit when the response arrived.
	Begun, Commit time.Duration
}

// Latency is how long an update waited for the start of the reconcile that saw it.
type Latency struct {
	Update
	Waited time.Duration
}

// Latencies matches updates with the reconciles that saw them first. An update that no reconcile saw is left out:
// the object was deleted first.
func Latencies(updates []Update, all []journal.Reconcile) []Latency {
	type object struct {
		key types.NamespacedName
		uid string
	}
	seen := map[object][]journal.Reconcile{}
	for _, r := range all {
		if r.UID != "" {
			o := object{r.Key, r.UID}
			seen[o] = append(seen[o], r)
		}
	}
	for _, list := range seen {
		slices.SortFunc(list, func(a, b journal.Reconcile) int { return cmp.Compare(a.Start, b.Start) })
	}
	var out []Latency
	for _, u := range updates {
		for _, r := range seen[object{u.Key, u.UID}] {
			if r.Generation >= u.Generation {
				// The watch may be faster than the response.
				out = append(out, Latency{u, max(0, r.Start-u.Commit)})
				break
			}
		}
	}
	return out
}

// Quantile returns the nearest-rank quantile q, from 0 to 1, of sorted durations; 0 of none.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(len(sorted), max(1, rank))-1]
}

// Waits returns the sorted waits of the latencies that match, less the baseline and at least 0.
func Waits(all []Latency, baseline time.Duration, match func(Latency) bool) []time.Duration {
	var out []time.Duration
	for _, l := range all {
		if match(l) {
			out = append(out, max(0, l.Waited-baseline))
		}
	}
	slices.Sort(out)
	return out
}
