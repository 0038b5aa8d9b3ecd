package controllers

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/protocol/trial"
	"github.com/rota-dev/rota/internal/work"
)

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

// step holds the results of a controller's reconciles in one step of a canary. Its zero value is ready to use.
type step struct {
	of table.Canary
	trial.Objects[types.NamespacedName]
}

// at returns the results for the current step of a canary and drops results of another step. It returns nil if no
// canary runs. A step includes its handovers, so slots may still be moving.
func (s *step) at(canary *table.Canary) *step {
	if !s.of.SameStep(canary) {
		*s = step{of: *canary}
	}
	if !canary.Runs() {
		return nil
	}
	return s
}

// Trial returns this member's report on the current step of a canary, or nil if none runs or the step has not begun.
func (s *Set) Trial() *coverage.Trial {
	canary := s.env.Canary()
	if !canary.Runs() || canary.Began == 0 {
		return nil
	}
	out := &coverage.Trial{Build: canary.Build, Began: canary.Began, Step: canary.Step}
	now := s.env.Wall()
	for _, c := range s.All() {
		one := trial.Side{Objects: int64(c.env.Share.Size(c.Kind)), Failing: int64(len(c.unwell(now)))}
		c.Work.With(func(k *keys) {
			one.Tally = c.trial.at(canary).Tally
			k.Streaks(func(types.NamespacedName, work.Streak) { one.Ailing++ })
		})
		out.Side = out.Plus(one)
	}
	return out
}
