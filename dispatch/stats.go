package dispatch

import (
	"cmp"
	"slices"
	"time"
)

// Counts are what has happened since New.
type Counts struct {
	// Changes were told of, Collapsed of them for keys that were pending anyway.
	Changes, Collapsed uint64
	// Taken are takes. Of these, Done succeeded, Retried failed, and Expired ended by their deadline.
	Taken, Done, Retried, Expired uint64
}

// Stats describe a kind.
type Stats struct {
	Kind string
	// Ready are the keys that wait for a worker, Delayed those that wait for a time, and Taken those that a worker has.
	Ready, Delayed, Taken int
	// Oldest is since when the key that has been ready longest is; 0: none is ready.
	Oldest time.Duration
}

// Counts returns what has happened since New.
func (q *Queue) Counts() Counts { return q.stats }

// Takes returns the takes under way, in the order of their IDs.
func (q *Queue) Takes(now time.Duration) []Take {
	q.tick(now)
	out := make([]Take, 0, len(q.byID))
	for _, t := range q.byID {
		out = append(out, t.Take)
	}
	slices.SortFunc(out, func(a, b Take) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Stats returns the state of each kind, in the order of Config.Kinds.
func (q *Queue) Stats() []Stats {
	out := make([]Stats, 0, len(q.kinds))
	for _, k := range q.kinds {
		s := Stats{Kind: k.name, Ready: k.all.ready, Delayed: k.delayed, Taken: k.taken}
		oldest := k.all.oldest()
		for _, w := range k.workers {
			s.Ready += w.ready
			oldest = min(oldest, w.oldest())
		}
		if oldest != never {
			s.Oldest = oldest
		}
		out = append(out, s)
	}
	return out
}
