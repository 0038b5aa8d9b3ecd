package report

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/permission"
)

// unlike holds why this process does not join: it conflicts with live members.
type unlike struct {
	mu    sync.Mutex
	found []coverage.Difference
}

func (u *unlike) set(found []coverage.Difference) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.found = found
}

// texts describes the conflicts; empty if nothing keeps this process from joining.
func (u *unlike) texts() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []string
	for _, d := range u.found {
		out = append(out, "members to end with which it cannot work together: "+d.String())
	}
	return out
}

// renewal is a member's report and when it was first seen.
type renewal struct {
	serial uint64
	at     time.Duration
	again  bool // the member has renewed its report since the first look
}

// Conflicts describes the live members that conflict with this one. It waits until they end.
func (r *Reporter) Conflicts() []string { return r.unlike.texts() }

// AwaitAlike waits while live members conflict with this one (rule R14). If this member took slots beside them, objects
// would have no owner, or two. A member counts as live while it renews its report. self describes this member's
// holdings and setup. If reports cannot be read, the member joins, since the member with the scrub duty also compares
// them. AwaitAlike returns false when ctx ends.
func (r *Reporter) AwaitAlike(ctx context.Context, self *coverage.Report) bool {
	defer r.unlike.set(nil)
	seen := map[string]renewal{}
	begun := r.env.Now()
	var emitted, logged time.Duration // 0 if never
	for ; ; _ = await.Sleep(ctx, r.env.Config.RetryPeriod) {
		if ctx.Err() != nil {
			return false
		}
		reports, err := r.env.Store().Read(ctx)
		if len(reports) == 0 && err != nil {
			if denied := new(permission.Error); !errors.As(err, &denied) && r.env.Now()-begun < r.env.Patience {
				continue
			}
			if ctx.Err() == nil {
				r.env.Log.Info("Cannot see what other members are set up for, and joins without", "cause", err.Error())
			}
			return ctx.Err() == nil
		}
		conflicts, certain := r.conflicts(self, reports, seen)
		if len(conflicts) == 0 {
			return true
		}
		if !certain {
			continue
		}
		r.unlike.set(conflicts)
		now := r.env.Now()
		event, line := emitted == 0 || now-emitted >= r.env.Again, now-logged >= r.env.Patience
		for _, d := range conflicts {
			message := "This member takes no slots while others work with which it cannot work together: " + d.String()
			if event {
				r.env.Emit(ctx, member.Notify{Reason: "SetupDiffers", Warning: true, Message: message})
			} else if line {
				r.env.Log.Info(message)
			}
		}
		if event {
			emitted = now
		}
		if event || line {
			logged = now
		}
	}
}

// conflicts returns the differences between this member and live ones. certain is true if one of those is known to be
// alive: a dead member leaves its report behind.
func (r *Reporter) conflicts(self *coverage.Report, reports []*coverage.Report,
	seen map[string]renewal,
) (found []coverage.Difference, certain bool) {
	stale := coverage.BoundsBy(append(reports, self)).Stale
	var live []*coverage.Report
	for _, report := range reports {
		last, known := seen[report.Member]
		if !known || last.serial != report.Serial {
			last = renewal{serial: report.Serial, at: r.env.Now(), again: known}
			seen[report.Member] = last
		}
		if r.env.Now()-last.at <= stale {
			live = append(live, report)
		}
	}
	found = coverage.Conflicts(self, live)
	for _, d := range found {
		for _, id := range d.Members() {
			certain = certain || seen[id].again
		}
	}
	return found, certain
}
