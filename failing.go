package rota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/duty"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/work"
)

const (
	// failingAfter is how long all reconciles of a controller must fail before that is reported. Backends fail for shorter
	// times.
	failingAfter = time.Minute
	// failingObjects is the least number of objects that must fail, or all that this member has, if no reconcile has ever
	// succeeded: a few of many objects may be broken themselves. If one has succeeded, half of the member's objects must
	// fail, up to work.CountedFailures: when there is little to do, the few that are tried may be the broken ones.
	failingObjects = 3
	// failingPeriod is the time between two looks.
	failingPeriod = 5 * time.Second
)

// Failing is a controller whose reconciles all fail on this member, or a duty that keeps failing there.
type Failing struct {
	// Controller is empty for a duty, and Duty for a controller.
	Controller, Duty string
	// For is the time since the first failure after the last success.
	For time.Duration
	// Reconciles is how many failed since then; of a duty, how many runs.
	Reconciles int
	// Never says that none has succeeded since this process started.
	Never bool
	// Err is the last error; nil where the queue was only told to try again.
	Err error
}

// String returns a sentence for logs and events.
func (f Failing) String() string {
	before := "since then"
	if f.Never {
		before = "since the start"
	}
	who, what := "controller "+f.Controller, "reconciles"
	if f.Duty != "" {
		who, what = "duty "+f.Duty, "runs"
	}
	s := fmt.Sprintf("%s: all %d %s in the last %v failed on this member, and none has succeeded %s",
		who, f.Reconciles, what, f.For.Round(time.Second), before)
	if f.Err != nil {
		s += fmt.Sprintf("; the last error: %v", f.Err)
	}
	return s
}

// allFail says what a sum of results comes to if all reconciles fail. there is the number of objects.
func allFail(sum work.Sum, now time.Duration, there func() int) (Failing, bool) {
	if sum.Failures == 0 || now-sum.Since < failingAfter || sum.Objects == 0 {
		return Failing{}, false
	}
	if there := there(); sum.Objects < there {
		enough := failingObjects
		if sum.Succeeded {
			enough = max(enough, min((there+1)/2, work.CountedFailures))
		}
		if sum.Objects < enough {
			return Failing{}, false
		}
	}
	return Failing{For: now - sum.Since, Reconciles: sum.Failures, Never: !sum.Succeeded, Err: sum.Err}, true
}

// turn reports whether a change has to be reported: all reconciles fail now, or do not any more.
func (c *Controller) turn(failing bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	turned := failing != c.toldFailing && (failing || c.sum().Failures == 0)
	if turned {
		c.toldFailing = failing
	}
	return turned
}

// errAgain stands for an error that the queue did not get.
var errAgain = errors.New("the key was added again with a backoff")

// Ended notes the result of the reconcile of an admitted key; nil is success. Call it before Done. Without it, a key
// that is added to a Queue by AddRateLimited before its Done counts as failed, and every other one as a success.
func (c *Controller) Ended(key types.NamespacedName, err error) {
	c.work.With(func(k *keys) { k.Result(key, err, false) })
}

// again notes that a key will be tried again after a backoff: it failed, unless Ended said otherwise.
func (c *Controller) again(key types.NamespacedName) {
	c.work.With(func(k *keys) { k.Result(key, errAgain, true) })
}

// judge counts the result of a flight.
func (c *Controller) judge(key types.NamespacedName, f work.Flight[work.Flying]) {
	err := f.Err
	if errors.Is(err, errAgain) {
		err = nil
	}
	panicked := errors.Is(err, adapter.ErrPanicked)
	if panicked {
		c.tellPanic(key, f.Slot)
	}
	failure := work.Failure{Slot: f.Slot, At: c.rota.now(), Wall: c.rota.wall(), Err: err, Panicked: panicked}
	if f.Err != nil {
		failure.Text = coverage.ErrorText(err) // which calls the error
	}
	c.work.With(func(k *keys) {
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

// sum is what came of all reconciles.
func (c *Controller) sum() (sum work.Sum) {
	c.work.With(func(k *keys) { sum = k.Sum() })
	return sum
}

func (c *Controller) failing() (Failing, bool) {
	f, failing := allFail(c.sum(), c.rota.now(), func() int { return c.rota.share.Size(c.kind) })
	f.Controller = c.name
	return f, failing
}

// Failing returns the controllers whose reconciles have all failed on this member for at least a minute. If none has
// ever succeeded since the start, three objects must have failed, else half of the member's objects; all objects
// suffice. The member keeps its slots and stays ready: whatever is broken may be broken for all members.
//
// A duty that this member has is returned if it has failed at least three times in a row, for at least a minute, and
// has not been running for 5 minutes now.
func (r *Rota) Failing() []Failing {
	var out []Failing
	for _, c := range r.registered() {
		if f, failing := c.failing(); failing {
			out = append(out, f)
		}
	}
	for _, d := range r.duties.All() {
		if f, failing := failingDuty(d); failing {
			out = append(out, f)
		}
	}
	return out
}

func failingDuty(d *duty.Duty) (Failing, bool) {
	f, failing := d.Failing()
	return Failing{Duty: d.Name(), For: f.For, Reconciles: f.Runs, Never: f.Never, Err: f.Err}, failing
}

// watchFailing reports controllers whose reconciles all fail, once each time, until ctx ends.
func (r *Rota) watchFailing(ctx context.Context) {
	tick := time.NewTicker(failingPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, c := range r.registered() {
			f, failing := c.failing()
			switch {
			case !c.turn(failing):
			case failing:
				r.tell(ctx, member.Notify{Reason: "ReconcilesFail", Warning: true, Message: f.String()})
			default:
				r.tell(ctx, member.Notify{Reason: "ReconcilesSucceed",
					Message: fmt.Sprintf("Controller %s: reconciles succeed again on this member", c.name)})
			}
		}
		for _, d := range r.duties.All() {
			f, failing := failingDuty(d)
			switch {
			case !d.Turn(failing):
			case failing:
				r.tell(ctx, member.Notify{Reason: "DutyFails", Warning: true, Message: f.String()})
			default:
				r.tell(ctx, member.Notify{Reason: "DutyWorks",
					Message: fmt.Sprintf("Duty %s works again on this member", d.Name())})
			}
		}
	}
}

// tell logs a notice and makes an event of it.
func (r *Rota) tell(ctx context.Context, n member.Notify) {
	r.note(n)
	r.store.Notify(ctx, n)
}

// tellNow is tell for a process that may be about to end. It blocks until the event was created or ctx ends.
func (r *Rota) tellNow(ctx context.Context, n member.Notify) {
	r.note(n)
	r.store.NotifyNow(ctx, n)
}

// note logs and counts a notice.
func (r *Rota) note(n member.Notify) {
	log := r.log.WithValues("member", r.ID(), "reason", n.Reason)
	if n.Warning {
		log.Error(nil, n.Message)
	} else {
		log.Info(n.Message)
	}
	r.metrics.told(n.Reason)
}
