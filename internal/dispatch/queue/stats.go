package queue

import (
	"cmp"
	"slices"
	"time"
)

// Counts are what has happened since New.
type Counts struct {
	// Changes were told of, Collapsed of them for keys that were pending anyway.
	Changes, Collapsed uint64
	// Taken are takes. Of these, Done succeeded, Retried failed, Released were given back, and Expired ended by their
	// deadline.
	Taken, Done, Retried, Released, Expired uint64
}

func (c *Counts) add(other Counts) {
	c.Changes += other.Changes
	c.Collapsed += other.Collapsed
	c.Taken += other.Taken
	c.Done += other.Done
	c.Retried += other.Retried
	c.Released += other.Released
	c.Expired += other.Expired
}

// Stats describe a kind.
type Stats struct {
	Kind string
	// Ready are the keys that wait for a worker, Delayed those that wait for a time, and Taken those that a worker has.
	Ready, Delayed, Taken int
	// MaxTaken is how many may be taken; 0: any number.
	MaxTaken int
	// Oldest is since when the key that has been ready longest is; 0: none is ready. OldestChanged is the same of class
	// Changed alone.
	Oldest, OldestChanged time.Duration
	// Failing are the keys whose last take failed or expired, and FailingSince is since when the one fails that has done
	// so for longest.
	Failing      int
	FailingSince time.Duration
	Counts       Counts
}

// Counts returns what has happened since New, to all kinds.
func (q *Queue) Counts() Counts {
	var all Counts
	for _, k := range q.kinds {
		all.add(k.counts)
	}
	return all
}

// Take returns a take under way.
func (q *Queue) Take(id uint64) (Take, bool) {
	if t := q.byID[id]; t != nil {
		return t.Take, true
	}
	return Take{}, false
}

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
		s := Stats{Kind: k.name, Ready: k.ready, Delayed: k.delayed, Taken: k.taken, MaxTaken: k.most, Counts: k.counts}
		oldest := k.all.oldest()
		for _, w := range k.heads.h {
			for class, since := range w.oldest() {
				oldest[class] = min(oldest[class], since)
			}
		}
		if oldest[Changed] != never {
			s.OldestChanged = oldest[Changed]
		}
		if all := slices.Min(oldest[:]); all != never {
			s.Oldest = all
		}
		s.Failing = len(k.failing)
		since := never
		for e := range k.failing {
			since = min(since, e.failure.since)
		}
		if since != never {
			s.FailingSince = since
		}
		out = append(out, s)
	}
	return out
}
