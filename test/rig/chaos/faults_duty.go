package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/proxy"
)

// dutyFaults are aimed at the member that has a duty, one of both by the seed.
var dutyFaults = []rig.Scenario{
	{Name: "duty-kill", Crash: true, What: "the member that has a duty is killed (SIGKILL), and its Pod is gone",
		Do: func(ctx context.Context, r *rig.Run) error {
			name, m, err := r.Duty(ctx)
			if err != nil {
				return err
			}
			return errors.Join(m.Kill(), r.DutyTaken(ctx, name, m.Pod))
		}},
	{Name: "duty-pause", Late: true,
		What: "the member that has a duty stops (SIGSTOP) in the middle of sending a write of it, after all checks, and " +
			"goes on when another one does the duty",
		Do: func(ctx context.Context, r *rig.Run) error { return pauseDuty(ctx, r, rig.AtWrite) }},
	{Name: "duty-pause-run", Late: true,
		What: "the member that has a duty stops (SIGSTOP) before a write of it, and goes on when another one does the duty",
		Do:   func(ctx context.Context, r *rig.Run) error { return pauseDuty(ctx, r, rig.AtReconcile) }},
	{Name: "duty-held-write", Late: true,
		What: "the network keeps a write of a duty by a member that it cuts off, and delivers it when another one does the " +
			"duty",
		Do: func(ctx context.Context, r *rig.Run) error {
			name, m, err := r.Duty(ctx)
			if err != nil {
				return err
			}
			return r.Hold(ctx, m, rig.IsDutyWrite(name), func(id string) error {
				m.Proxy.Set(proxy.Faults{SwallowRequests: true, SwallowResponses: true})
				return errors.Join(r.Expelled(ctx, id), r.DutyTaken(ctx, name, m.Pod))
			})
		}},
}

// pauseDuty stops the member that has a duty until another one does it.
func pauseDuty(ctx context.Context, r *rig.Run, place string) error {
	name, m, err := r.Duty(ctx)
	if err != nil {
		return err
	}
	id, err := r.MemberID(ctx, m.Pod)
	if err != nil {
		return err
	}
	return m.Pause(ctx, place, name, func(time.Duration) error {
		return errors.Join(r.Expelled(ctx, id), r.DutyTaken(ctx, name, m.Pod))
	})
}
