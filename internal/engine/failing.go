package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/internal/work"
)

// failingPeriod is the time between two checks.
const failingPeriod = 5 * time.Second

// Failing implements rota.Failing.
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

// Failing implements rota.Rota.Failing.
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

// watchFailing reports controllers whose reconciles all fail and kinds that cannot be listed or watched, until ctx
// ends. Each failure is reported once.
func (r *Engine) watchFailing(ctx context.Context) {
	tick := time.NewTicker(failingPeriod)
	defer tick.Stop()
	reported, reportedLabels := map[schema.GroupKind]bool{}, map[schema.GroupKind]bool{}
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.reportRefused(ctx, reported)
		r.reportUnlabelled(ctx, reportedLabels)
		for _, c := range r.controllers.All() {
			f, failing := c.Failing()
			switch {
			case !c.Turn(failing):
			case failing:
				r.emit(ctx, member.Notify{Reason: "ReconcilesFail", Warning: true, Message: failingOf(c.Name, "", f).String()})
			default:
				r.emit(ctx, member.Notify{Reason: "ReconcilesSucceed",
					Message: fmt.Sprintf("Controller %s: reconciles succeed again on this member", c.Name)})
			}
		}
		for _, d := range r.duties.All() {
			f, failing := d.Failing()
			switch {
			case !d.Turn(failing):
			case failing:
				r.emit(ctx, member.Notify{Reason: "DutyFails", Warning: true, Message: failingOf("", d.Name(), f).String()})
			default:
				r.emit(ctx, member.Notify{Reason: "DutyWorks",
					Message: fmt.Sprintf("Duty %s works again on this member", d.Name())})
			}
		}
	}
}

// refusedAfter is how long lists or watches of a kind must have failed before that is reported. Diagnosing the failure
// takes less.
const refusedAfter = 45 * time.Second

// refusedKinds returns the kinds that cannot be listed or watched, each once.
func (r *Engine) refusedKinds() (out []coverage.Refused) {
	for _, f := range r.share.Failing() {
		if f.Request == feed.RequestLookUp || feed.Unanswered(f.Err) || time.Since(f.Since) < refusedAfter {
			continue
		}
		out = append(out, coverage.Refused{Kind: f.Kind, Since: f.Since.UTC().Truncate(time.Second), Without: f.Without,
			Error: f.Err.Error()})
	}
	return coverage.MergeRefused(out)
}

// reportRefused reports the kinds that the API server has begun to refuse and those it no longer refuses.
func (r *Engine) reportRefused(ctx context.Context, reported map[schema.GroupKind]bool) {
	r.reportKinds(ctx, reported, r.refusedKinds(),
		func(f coverage.Refused) member.Notify {
			return member.Notify{Reason: "KindRefused", Warning: true, Message: f.String()}
		}, func(kind schema.GroupKind) member.Notify {
			return member.Notify{Reason: "KindServed", Message: fmt.Sprintf("This member can list and watch %s again", kind)}
		})
}

// reportKinds emits a notice for each kind that is newly refused and for each that is no longer refused. reported holds
// the kinds reported so far.
func (r *Engine) reportKinds(ctx context.Context, reported map[schema.GroupKind]bool, refused []coverage.Refused,
	begins func(coverage.Refused) member.Notify, ends func(schema.GroupKind) member.Notify,
) {
	now := map[schema.GroupKind]bool{}
	for _, f := range refused {
		now[f.Kind] = true
		if !reported[f.Kind] {
			reported[f.Kind] = true
			r.emit(ctx, begins(f))
		}
	}
	for kind := range reported {
		if !now[kind] {
			delete(reported, kind)
			r.emit(ctx, ends(kind))
		}
	}
}

// emit logs a notice and creates an event for it.
func (r *Engine) emit(ctx context.Context, n member.Notify) {
	r.note(n)
	r.store.Notify(ctx, n)
}

// emitNow is emit for a process that may be about to end. The message names the process, because the containers of a
// Pod restart under the same name. emitNow blocks until the event was created or ctx ends.
func (r *Engine) emitNow(ctx context.Context, n member.Notify) {
	n.Message += fmt.Sprintf(" (process %s)", r.process)
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
	r.metrics.event(n.Reason)
}
