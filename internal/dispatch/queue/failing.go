package queue

import (
	"slices"
	"strings"
	"time"
)

// MaxReason is how many bytes of a Result.Reason are kept.
const MaxReason = 512

// failure is the record of a failing key.
type failure struct {
	since, last time.Duration
	reason      string
}

// expiredReason is the reason for a take that expired.
const expiredReason = "the take expired: its worker died, or neither ended nor extended it in time"

// Failing is a key whose last take failed or expired.
type Failing struct {
	Key Key
	// Attempts is how many takes have failed or expired since the last success, and Since is when the first of them did. A
	// queue counts only its own takes: both start again with each owner of the slot.
	Attempts int
	Since    time.Duration
	// Last is when the last one failed, and Reason is why.
	Last   time.Duration
	Reason string
	// Taken is true if a worker has the key now. Otherwise Next is when it is handed out again, which may be in the past.
	Taken bool
	Next  time.Duration
}

// Failing returns the keys of some kinds whose last take failed or expired, starting with the one that has failed for
// the longest time, and how many there are in all. Unknown kinds are ignored.
func (q *Queue) Failing(now time.Duration, kinds []string, most int) (out []Failing, all int) {
	q.tick(now)
	var entries []*entry
	for _, name := range kinds {
		if k := q.byName[name]; k != nil {
			for e := range k.failing {
				entries = append(entries, e)
			}
		}
	}
	slices.SortFunc(entries, compareFailing)
	all = len(entries)
	for _, e := range entries[:min(max(most, 0), all)] {
		f := Failing{
			Key: e.key(), Attempts: int(e.attempts), Since: e.failure.since, Last: e.failure.last, Reason: e.failure.reason,
			Taken: e.take != nil,
		}
		if !f.Taken {
			f.Next = e.due
		}
		out = append(out, f)
	}
	return out, all
}

func compareFailing(a, b *entry) int {
	switch {
	case a.failure.since < b.failure.since:
		return -1
	case a.failure.since > b.failure.since:
		return 1
	}
	return strings.Compare(a.key().String(), b.key().String())
}

// fails records a failed take of a key.
func (e *entry) fails(now time.Duration, reason string) {
	if e.failure == nil {
		e.failure = &failure{since: now}
		e.kind.failing[e] = struct{}{}
	}
	if len(reason) > MaxReason {
		reason = strings.ToValidUTF8(reason[:MaxReason], "")
	}
	e.failure.last, e.failure.reason = now, reason
	e.attempts++
}

// succeeds clears the failures of a key.
func (e *entry) succeeds() {
	e.attempts = 0
	if e.failure != nil {
		e.failure = nil
		delete(e.kind.failing, e)
	}
}

// failed ends a take that failed.
func (q *Queue) failed(now time.Duration, t *taken, least time.Duration, reason string) {
	e := t.entry
	q.endTake(t)
	delay := q.cfg.BaseDelay
	for range e.attempts {
		if delay = min(2*delay, q.cfg.MaxDelay); delay == q.cfg.MaxDelay {
			break
		}
	}
	e.fails(now, reason)
	if !e.pending {
		e.pending, e.due, e.class = true, later(now, max(delay, least)), t.Class
	}
	q.place(now, e)
}
