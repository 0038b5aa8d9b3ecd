package work

import (
	"maps"
	"time"

	"github.com/rota-dev/rota/slot"
)

// Bounds of what is remembered. Beyond them, one more makes no difference.
const (
	// CountedFailures bounds how many objects that failed since the last success are counted.
	CountedFailures = 64
	// ExplainedFailures bounds how many streaks keep their error text. All streaks are counted, because canaries are
	// judged by their number.
	ExplainedFailures = 1000
)

// Failure is the result of a reconcile that failed.
type Failure struct {
	Slot slot.Slot
	// At is on the clock of Sum.Since, and Wall is the wall clock.
	At   time.Duration
	Wall time.Time
	// Err is nil if the key was only added again with a backoff. Text is the reported text.
	Err      error
	Text     string
	Panicked bool
}

// Streak describes an object's consecutive failures since its last success.
type Streak struct {
	// Slot is the slot of the last failure.
	Slot             slot.Slot
	Failures, Panics int
	Since, Last      time.Time
	// Text is empty if there were ExplainedFailures before it.
	Text string
}

// Sum combines the results of all reconciles since the last success.
type Sum struct {
	// Succeeded is true if a reconcile has ever succeeded.
	Succeeded bool
	// Since is the first failure since then. Failures counts failures, and Objects failed objects, up to CountedFailures.
	Since             time.Duration
	Failures, Objects int
	Err               error
}

// sum is a Sum, with the failed objects and the slots of their last reconciles.
type sum[K comparable] struct {
	Sum
	objects map[K]slot.Slot
}

// forget drops the failures of some objects. That does not count as a success.
func (s *sum[K]) forget(which func(K, slot.Slot) bool) {
	maps.DeleteFunc(s.objects, which)
	if len(s.objects) == 0 {
		s.Failures, s.Err = 0, nil
	}
}

// Sum returns the combined results of all reconciles.
func (k *Keys[K, F]) Sum() Sum {
	of := k.sum.Sum
	of.Objects = len(k.sum.objects)
	return of
}

// Streaks calls f with the streak of each key whose last reconcile failed.
func (k *Keys[K, F]) Streaks(f func(K, Streak)) {
	for key, e := range k.failing {
		f(key, *e.streak)
	}
}

// Fail counts a reconcile that failed.
func (k *Keys[K, F]) Fail(key K, f Failure) {
	if k.sum.Failures++; k.sum.Failures == 1 {
		k.sum.Since, k.sum.objects = f.At, map[K]slot.Slot{}
	}
	if k.sum.Err = f.Err; len(k.sum.objects) < CountedFailures {
		k.sum.objects[key] = f.Slot
	}
	e := k.failing[key]
	if e == nil {
		e = k.entryOf(key)
		e.streak, k.failing[key] = &Streak{Since: f.Wall}, e
	}
	a := e.streak
	a.Slot, a.Last = f.Slot, f.Wall
	a.Failures++
	if len(k.failing) <= ExplainedFailures || a.Text != "" {
		a.Text = f.Text
	}
	if f.Panicked {
		a.Panics++
	}
}

// IsFailing reports whether the last reconcile of a key failed.
func (k *Keys[K, F]) IsFailing(key K) bool { return k.failing[key] != nil }

// Succeed counts a reconcile that succeeded.
func (k *Keys[K, F]) Succeed(key K) {
	k.sum = sum[K]{Sum: Sum{Succeeded: true}}
	k.EndStreak(key)
}

// Cleared records that the object of a key is gone and needs no more reconciles. That does not count as a success,
// since there was usually nothing to do.
func (k *Keys[K, F]) Cleared(key K) {
	k.sum.forget(func(other K, _ slot.Slot) bool { return other == key })
	k.EndStreak(key)
}

// TakeLapsed returns true, once, if a key was failing when its slot was lost. Its failures are counted from zero again,
// so a backoff from before is out of date.
func (k *Keys[K, F]) TakeLapsed(key K) bool {
	_, anew := k.lapsed[key]
	delete(k.lapsed, key)
	return anew
}

// EndStreak drops a key's streak, whatever the result of its last reconcile.
func (k *Keys[K, F]) EndStreak(key K) {
	if e := k.failing[key]; e != nil {
		e.streak = nil
		delete(k.failing, key)
		k.tidy(e)
	}
}

// FailingAfter is how long all reconciles of a controller, or all runs of a duty, must fail before that is reported.
// Backends often fail for shorter times.
const FailingAfter = time.Minute

// Failing describes a controller whose reconciles all fail, or a duty whose runs do.
type Failing struct {
	// For is the time since the first failure after the last success, and Times how often it failed since then.
	For   time.Duration
	Times int
	// Never is true if none has succeeded since this process started.
	Never bool
	// Err is the last error, nil if a key was only added again with a backoff.
	Err error
}
