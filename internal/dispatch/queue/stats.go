package queue

import (
	"cmp"
	"slices"
	"time"
)

// Counts are totals since New.
type Counts struct {
	// Changes counts changes. Collapsed counts the changes to keys that were already pending.
	Changes, Collapsed uint64
	// Taken counts takes. Of these, Done succeeded, Retried failed, Released were given back, and Expired reached their
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
	// Ready keys wait for a worker, Delayed keys for a time, and Taken keys are held by workers.
	Ready, Delayed, Taken int
	// MaxTaken is how many may be taken, or 0 for any number.
	MaxTaken int
	// Oldest is since when the oldest ready key has been ready, or 0 if none is ready. OldestChanged is the same for the
	// class Changed.
	Oldest, OldestChanged time.Duration
	// Failing is the number of keys whose last take failed or expired. FailingSince is when the first of them began to
	// fail.
	Failing      int
	FailingSince time.Duration
	Counts       Counts
}

// Counts returns the totals since New for all kinds.
func (q *Queue) Counts() Counts {
	var all Counts
	for _, k := range q.kinds {
		all.add(k.counts)
	}
	return all
}

// Take returns a take in progress.
func (q *Queue) Take(id uint64) (Take, bool) {
	if t := q.byID[id]; t != nil {
		return t.Take, true
	}
	return Take{}, false
}

// Takes returns the takes in progress, ordered by ID.
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
