package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/work"
)

// failingPeriod is the time between two looks.
const failingPeriod = 5 * time.Second

// Failing is rota.Failing.
type Failing struct {
	Controller, Duty string
	For              time.Duration
	Reconciles       int
	Never            bool
	Err              error
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

// Failing is Rota.Failing.
func (r *Engine) Failing() []Failing {
	var out []Failing
	for _, c := range r.controllers.All() {
		if f, failing := c.Failing(); failing {
			out = append(out, failingOf(c.Name, "", f))
		}
	}
	for _, d := range r.duties.All() {
		if f, failing := d.Failing(); failing {
			out = append(out, failingOf("", d.Name(), f))
		}
	}
	return out
}

func failingOf(controller, duty string, f work.Failing) Failing {
	return Failing{Controller: controller, Duty: duty, For: f.For, Reconciles: f.Times, Never: f.Never, Err: f.Err}
}

// watchFailing reports controllers whose reconciles all fail, once each time, until ctx ends.
func (r *Engine) watchFailing(ctx context.Context) {
	tick := time.NewTicker(failingPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, c := range r.controllers.All() {
			f, failing := c.Failing()
			switch {
			case !c.Turn(failing):
			case failing:
				r.tell(ctx, member.Notify{Reason: "ReconcilesFail", Warning: true, Message: failingOf(c.Name, "", f).String()})
			default:
				r.tell(ctx, member.Notify{Reason: "ReconcilesSucceed",
					Message: fmt.Sprintf("Controller %s: reconciles succeed again on this member", c.Name)})
			}
		}
		for _, d := range r.duties.All() {
			f, failing := d.Failing()
			switch {
			case !d.Turn(failing):
			case failing:
				r.tell(ctx, member.Notify{Reason: "DutyFails", Warning: true, Message: failingOf("", d.Name(), f).String()})
			default:
				r.tell(ctx, member.Notify{Reason: "DutyWorks",
					Message: fmt.Sprintf("Duty %s works again on this member", d.Name())})
			}
		}
	}
}

// tell logs a notice and makes an event of it.
func (r *Engine) tell(ctx context.Context, n member.Notify) {
	r.note(n)
	r.store.Notify(ctx, n)
}

// tellNow is tell for a process that may be about to end. It blocks until the event was created or ctx ends.
func (r *Engine) tellNow(ctx context.Context, n member.Notify) {
	r.note(n)
	r.store.NotifyNow(ctx, n)
}

// note logs and counts a notice.
func (r *Engine) note(n member.Notify) {
	log := r.log.WithValues("member", r.ID(), "reason", n.Reason)
	if n.Warning {
		log.Error(nil, n.Message)
	} else {
		log.Info(n.Message)
	}
	r.metrics.told(n.Reason)
}
