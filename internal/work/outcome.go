package work

import (
	"maps"
	"time"

	"github.com/rota-dev/rota/slot"
)

// Bounds of what is remembered. With so many, one more tells nothing new.
const (
	// CountedFailures bounds the objects of which it is remembered that they failed since the last success.
	CountedFailures = 64
	// ExplainedAilments bounds those whose last reconcile failed and of which the error is remembered. All are counted:
	// canaries are judged by how many there are.
	ExplainedAilments = 1000
)

// Failure is what came of a reconcile that failed.
type Failure struct {
	Slot slot.Slot
	// At is on the clock of Sum.Since, Wall that of the wall.
	At   time.Duration
	Wall time.Time
	// Err is nil if the queue was only told to try again. Text is what is reported of it.
	Err      error
	Text     string
	Panicked bool
}

// Ailment is what came of an object's reconciles since the last one that succeeded.
type Ailment struct {
	// Slot is that of the last one.
	Slot             slot.Slot
	Failures, Panics int
	Since, Last      time.Time
	// Text is empty if more than ExplainedAilments came before it.
	Text string
}

// Sum is what came of the reconciles of all keys since the last one that succeeded.
type Sum struct {
	// Succeeded says that one did, ever.
	Succeeded bool
	// Since is when the first failed since. Failures counts them, and Objects their objects, up to CountedFailures.
	Since             time.Duration
	Failures, Objects int
	Err               error
}

// sum is a Sum, of these objects and the slots of their last reconciles.
type sum[K comparable] struct {
	Sum
	objects map[K]slot.Slot
}

// forget drops the failures of some objects. That is no success.
func (s *sum[K]) forget(which func(K, slot.Slot) bool) {
	maps.DeleteFunc(s.objects, which)
	if len(s.objects) == 0 {
		s.Failures, s.Err = 0, nil
	}
}

// Sum returns what came of all reconciles.
func (k *Keys[K, F]) Sum() Sum {
	of := k.sum.Sum
	of.Objects = len(k.sum.objects)
	return of
}

// Ailments calls f for the keys whose last reconcile failed.
func (k *Keys[K, F]) Ailments(f func(K, Ailment)) {
	for key, e := range k.ailing {
		f(key, *e.ailment)
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
	e := k.ailing[key]
	if e == nil {
		e = k.entryOf(key)
		e.ailment, k.ailing[key] = &Ailment{Since: f.Wall}, e
	}
	a := e.ailment
	a.Slot, a.Last = f.Slot, f.Wall
	a.Failures++
	if len(k.ailing) <= ExplainedAilments || a.Text != "" {
		a.Text = f.Text
	}
	if f.Panicked {
		a.Panics++
	}
}

// Ails says whether the last reconcile of a key failed.
func (k *Keys[K, F]) Ails(key K) bool { return k.ailing[key] != nil }

// Succeed counts a reconcile that succeeded.
func (k *Keys[K, F]) Succeed(key K) {
	k.sum = sum[K]{Sum: Sum{Succeeded: true}}
	k.Heal(key)
}

// Cleared notes that the object of a key is gone and needs no more reconciles. That is no success: usually there was
// nothing to do.
func (k *Keys[K, F]) Cleared(key K) {
	k.sum.forget(func(other K, _ slot.Slot) bool { return other == key })
	k.Heal(key)
}

// Anew says, once, that a key ailed when its slot was lost. Its failures are counted anew, so a backoff that still
// counts the former ones is out of date.
func (k *Keys[K, F]) Anew(key K) bool {
	_, anew := k.lapsed[key]
	delete(k.lapsed, key)
	return anew
}

// Heal notes that a key is not ailing any more, whatever its last reconcile came to.
func (k *Keys[K, F]) Heal(key K) {
	if e := k.ailing[key]; e != nil {
		e.ailment = nil
		delete(k.ailing, key)
		k.tidy(e)
	}
}
