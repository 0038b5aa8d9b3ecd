package judge

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/test/rig/journal"
)

// TakeOverlaps returns all pairs of takes of one namespace/name that overlap in time, those of one worker included. A
// take lasts until its worker said that it is done, or until its deadline: whatever the worker does later counts for
// nothing, and that the worker is dead makes the take no shorter. So a take that a stopped worker begins after the
// deadline, when it goes on, lasts no time.
func TakeOverlaps(all []journal.Reconcile) []Overlap {
	byKey := map[types.NamespacedName][]journal.Reconcile{}
	for _, r := range all {
		if r.End = TakeEnd(r); r.Start < r.End {
			byKey[r.Key] = append(byKey[r.Key], r)
		}
	}
	var out []Overlap
	for _, list := range byKey {
		out = append(out, overlapping(list, func(_, _ journal.Reconcile) bool { return true })...)
	}
	sortOverlaps(out)
	return out
}

// TakeEnd is when a take ended. One without an end and without a deadline does not end.
func TakeEnd(r journal.Reconcile) time.Duration {
	end := never
	if r.End > 0 {
		end = r.End
	}
	if r.Deadline > 0 {
		end = min(end, r.Deadline)
	}
	return end
}

// Overdue returns for how long at most a worker went on with a take after its deadline. Workers that were stopped
// meanwhile could do nothing about it, and do not count.
func Overdue(all []journal.Reconcile, stopped func(worker string) bool) time.Duration {
	var longest time.Duration
	for _, r := range all {
		if r.Deadline > 0 && !stopped(r.Pod) {
			longest = max(longest, r.End-r.Deadline)
		}
	}
	return longest
}

// Retake is a take that a worker had when it was lost, and how long after that the key was taken again.
type Retake struct {
	Lost journal.Reconcile
	// Waited is below 0 if the key was never taken again.
	Waited time.Duration
}

// Retaken returns what came of the takes that a worker had at a time, when it was killed or stopped for longer than its
// takes.
func Retaken(all []journal.Reconcile, worker string, at time.Duration) []Retake {
	var out []Retake
	for _, r := range all {
		if r.Pod != worker || r.Start > at || r.End > 0 && r.End <= at {
			continue
		}
		lost := Retake{r, -1}
		for _, next := range all {
			if next.Key == r.Key && next.Start > at && (lost.Waited < 0 || next.Start-at < lost.Waited) {
				lost.Waited = next.Start - at
			}
		}
		out = append(out, lost)
	}
	return out
}

// Unseen returns the updates that no take has seen although there is no later one of the object, and the object was not
// deleted: their keys were lost. there says that the object of that key and UID exists at the end.
func Unseen(updates []Update, all []journal.Reconcile, there func(types.NamespacedName, string) bool) []Update {
	type object struct {
		key types.NamespacedName
		uid string
	}
	seen, last := map[object]int64{}, map[object]Update{}
	for _, r := range all {
		if o := (object{r.Key, r.UID}); r.UID != "" && r.End > 0 {
			seen[o] = max(seen[o], r.Generation)
		}
	}
	for _, u := range updates {
		if o := (object{u.Key, u.UID}); last[o].Generation < u.Generation {
			last[o] = u
		}
	}
	var out []Update
	for o, u := range last {
		if seen[o] < u.Generation && there(o.key, o.uid) {
			out = append(out, u)
		}
	}
	slices.SortFunc(out, func(a, b Update) int { return cmp.Compare(a.Commit, b.Commit) })
	return out
}
