package controllers

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/work"
)

// ErrPanicked is the result (Controller.Ended) of a reconcile that panicked.
var ErrPanicked = errors.New("the reconciler panicked: the log has the stack")

const (
	// failingObjects is the least number of failing objects, or all objects of this member if fewer, if no reconcile has
	// ever succeeded: if there are many, a few may be broken themselves. After a success, half of the member's objects
	// must fail, up to work.CountedFailures: with little to do, the few that are tried may be the broken ones.
	failingObjects = 3
)

// allFail reports whether all reconciles fail, given their sum. there returns the number of objects.
func allFail(sum work.Sum, now time.Duration, there func() int) (work.Failing, bool) {
	if sum.Failures == 0 || now-sum.Since < work.FailingAfter || sum.Objects == 0 {
		return work.Failing{}, false
	}
	if there := there(); sum.Objects < there {
		enough := failingObjects
		if sum.Succeeded {
			enough = max(enough, min((there+1)/2, work.CountedFailures))
		}
		if sum.Objects < enough {
			return work.Failing{}, false
		}
	}
	return work.Failing{For: now - sum.Since, Times: sum.Failures, Never: !sum.Succeeded, Err: sum.Err}, true
}

// Turn reports whether a change must be reported: all reconciles fail now, or no longer fail.
func (c *Controller) Turn(failing bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	turned := failing != c.reportedFailing && (failing || c.Sum().Failures == 0)
	if turned {
		c.reportedFailing = failing
	}
	return turned
}

// errAgain stands in for an error that was not passed to the queue.
var errAgain = errors.New("the key was added again with a backoff")

// Ended records the result of the reconcile of an admitted key, nil for success. Call it before Done. Without it, a key
// added to a Queue by AddRateLimited before its Done counts as failed, and every other key as a success.
func (c *Controller) Ended(key types.NamespacedName, err error) {
	if o := c.env.Observer; o != nil {
		o.Result(c.Kind, key, err)
	}
	c.Work.With(func(k *keys) { k.Result(key, err, false) })
}

// again records that a key will be tried again after a backoff. It counts as failed unless Ended was called.
func (c *Controller) again(key types.NamespacedName) {
	c.Work.With(func(k *keys) { k.Result(key, errAgain, true) })
}

// judge counts the result of a flight.
func (c *Controller) judge(key types.NamespacedName, f work.Flight[work.Flying]) {
	err := f.Err
	if errors.Is(err, errAgain) {
		err = nil
	}
	panicked := errors.Is(err, ErrPanicked)
	if panicked {
		c.reportPanic(key, f.Slot)
	}
	failure := work.Failure{Slot: f.Slot, At: c.env.Now(), Wall: c.env.Wall(), Err: err, Panicked: panicked}
	if f.Err != nil {
		failure.Text = coverage.ErrorText(err) // outside of With, because it calls err.Error
	}
	took := failure.At - f.With.Begun
	c.Work.With(func(k *keys) {
		if step := c.trial.at(c.env.Canary()); step != nil && !f.Gone && !k.IsFailing(key) {
			step.Try(key, f.Arrived, took, f.Beside, f.Err != nil)
		}
		switch {
		case f.Err != nil:
			k.Fail(key, failure)
		case f.Gone:
			k.Cleared(key)
		default:
			k.Succeed(key)
		}
	})
}

// Sum returns the combined results of all reconciles.
func (c *Controller) Sum() (sum work.Sum) {
	c.Work.With(func(k *keys) { sum = k.Sum() })
	return sum
}

// Failing reports whether all reconciles fail on this member.
func (c *Controller) Failing() (work.Failing, bool) {
	return allFail(c.Sum(), c.env.Now(), func() int { return c.env.Share.Size(c.Kind) })
}
