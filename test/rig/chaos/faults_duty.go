package chaos

import (
	"context"
	"errors"

	"github.com/rota-dev/rota/test/rig/proxy"
)

// dutyFaults are aimed at the member that has a duty, one of both by the seed.
var dutyFaults = []fault{
	{name: "duty-kill", crash: true, what: "the member that has a duty is killed (SIGKILL), and its Pod is gone",
		do: func(ctx context.Context, r *run) error {
			name, m, err := r.dutyVictim(ctx)
			if err != nil {
				return err
			}
			return errors.Join(m.lose(), r.dutyTaken(ctx, name, m.pod))
		}},
	{name: "duty-pause", late: true,
		what: "the member that has a duty stops (SIGSTOP) in the middle of sending a write of it, after all checks, and " +
			"goes on when another one does the duty",
		do: func(ctx context.Context, r *run) error { return r.pauseDuty(ctx, atWrite) }},
	{name: "duty-pause-run", late: true,
		what: "the member that has a duty stops (SIGSTOP) before a write of it, and goes on when another one does the duty",
		do:   func(ctx context.Context, r *run) error { return r.pauseDuty(ctx, atReconcile) }},
	{name: "duty-held-write", late: true,
		what: "the network keeps a write of a duty by a member that it cuts off, and delivers it when another one does the " +
			"duty",
		do: func(ctx context.Context, r *run) error {
			name, m, err := r.dutyVictim(ctx)
			if err != nil {
				return err
			}
			return r.hold(ctx, m, isDutyWrite(name), func(id string) error {
				m.proxy.Set(proxy.Faults{SwallowRequests: true, SwallowResponses: true})
				return errors.Join(r.expelled(ctx, id), r.dutyTaken(ctx, name, m.pod))
			})
		}},
}

// pauseDuty stops the member that has a duty until another one does it.
func (r *run) pauseDuty(ctx context.Context, place string) error {
	name, m, err := r.dutyVictim(ctx)
	if err != nil {
		return err
	}
	t, err := r.table(ctx)
	if err != nil {
		return err
	}
	return m.pauseUntil(ctx, place, name, func() error {
		return errors.Join(r.expelled(ctx, idOf(t, m.pod)), r.dutyTaken(ctx, name, m.pod))
	})
}
