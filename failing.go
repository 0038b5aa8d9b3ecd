package rota

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/member"
	"github.com/rota-dev/rota/slot"
)

const (
	// failingAfter is how long all reconciles of a controller must fail before that is reported. Backends fail for shorter
	// times.
	failingAfter = time.Minute
	// failingObjects is the least number of objects that must fail, or all that this member has, if no reconcile has ever
	// succeeded: a few of many objects may be broken themselves. If one has succeeded, half of the member's objects must
	// fail, up to failingCounted: when there is little to do, the few that are tried may be the broken ones.
	failingObjects = 3
	failingCounted = 64
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

// outcomes sums up the results of a controller's reconciles.
type outcomes struct {
	mu        sync.Mutex
	succeeded bool          // one did, ever
	since     time.Duration // of the first failure after the last success
	failures  int
	objects   map[types.NamespacedName]slot.Slot // of these failures, failingCounted at most
	err       error
	told      bool
}

// add counts a result.
func (o *outcomes) add(now time.Duration, key types.NamespacedName, s slot.Slot, failed bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !failed {
		o.succeeded, o.failures, o.objects, o.err = true, 0, nil, nil
		return
	}
	if o.failures++; o.failures == 1 {
		o.since, o.objects = now, map[types.NamespacedName]slot.Slot{}
	}
	if len(o.objects) < failingCounted {
		o.objects[key] = s
	}
	o.err = err
}

// failing reports whether all reconciles fail. count returns the number of objects.
func (o *outcomes) failing(now time.Duration, count func() int) (Failing, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures == 0 || now-o.since < failingAfter || len(o.objects) == 0 {
		return Failing{}, false
	}
	if there := count(); len(o.objects) < there {
		enough := failingObjects
		if o.succeeded {
			enough = max(enough, min((there+1)/2, failingCounted))
		}
		if len(o.objects) < enough {
			return Failing{}, false
		}
	}
	return Failing{For: now - o.since, Reconciles: o.failures, Never: !o.succeeded, Err: o.err}, true
}

// forget drops the failures of objects in slots that went to other members.
func (o *outcomes) forget(set slot.Set) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.objects, func(_ types.NamespacedName, s slot.Slot) bool { return set.Has(s) })
	if len(o.objects) == 0 {
		o.failures, o.err = 0, nil
	}
}

// forgetDeleted drops the failures of an object that is gone and needs no more reconciles. That is no success: usually
// there was nothing to do.
func (o *outcomes) forgetDeleted(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.objects, key); len(o.objects) == 0 {
		o.failures, o.err = 0, nil
	}
}

// turn reports whether a change has to be reported: all reconciles fail now, or do not any more.
func (o *outcomes) turn(failing bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	turned := failing != o.told && (failing || o.failures == 0)
	if turned {
		o.told = failing
	}
	return turned
}

// errAgain stands for an error that the queue did not get.
var errAgain = errors.New("the key was added again with a backoff")

// Ended notes the result of the reconcile of an admitted key; nil is success. Call it before Done. Without it, a key
// that is added to a Queue by AddRateLimited before its Done counts as failed, and every other one as a success.
func (c *Controller) Ended(key types.NamespacedName, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.flying[key]; ok {
		f.ended, f.err = true, err
		c.flying[key] = f
	}
}

// again notes that a key will be tried again after a backoff: it failed, unless Ended said otherwise.
func (c *Controller) again(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := c.flying[key]; ok && !f.ended {
		f.ended, f.err = true, errAgain
		c.flying[key] = f
	}
}

// judge counts the result of a flight.
func (c *Controller) judge(key types.NamespacedName, f flight) {
	failed := f.err != nil
	if f.gone && !failed {
		c.outcomes.forgetDeleted(key)
		return
	}
	if errors.Is(f.err, errAgain) {
		f.err = nil
	}
	c.outcomes.add(c.rota.now(), key, f.slot, failed, f.err)
}

func (c *Controller) failing() (Failing, bool) {
	f, failing := c.outcomes.failing(c.rota.now(), func() int { return c.rota.share.Size(c.kind) })
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
	for _, d := range r.duties.sorted() {
		if f, failing := d.failing(); failing {
			out = append(out, f)
		}
	}
	return out
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
			case !c.outcomes.turn(failing):
			case failing:
				r.tell(ctx, member.Notify{Reason: "ReconcilesFail", Warning: true, Message: f.String()})
			default:
				r.tell(ctx, member.Notify{Reason: "ReconcilesSucceed",
					Message: fmt.Sprintf("Controller %s: reconciles succeed again on this member", c.name)})
			}
		}
		for _, d := range r.duties.sorted() {
			f, failing := d.failing()
			switch {
			case !d.turn(failing):
			case failing:
				r.tell(ctx, member.Notify{Reason: "DutyFails", Warning: true, Message: f.String()})
			default:
				r.tell(ctx, member.Notify{Reason: "DutyWorks",
					Message: fmt.Sprintf("Duty %s works again on this member", d.name)})
			}
		}
	}
}

// tell logs a notice and makes an event of it.
func (r *Rota) tell(ctx context.Context, n member.Notify) {
	log := r.log.WithValues("member", r.ID(), "reason", n.Reason)
	if n.Warning {
		log.Error(nil, n.Message)
	} else {
		log.Info(n.Message)
	}
	r.metrics.told(n.Reason)
	r.store.Notify(ctx, n)
}
