package rig

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/judge"
)

// Update is a rolling update of all members, one by one, with one more than usual meanwhile, as a Deployment with
// maxSurge 1 and maxUnavailable 0 does it.
type Update struct {
	// Build is the new replicas'. Command starts them; empty: StageOptions.Command.
	Build   string
	Command []string
	// Stock makes the new replicas have leader election instead of Rota.
	Stock bool
	// MayEnd is true if a new replica may end at its start, because it cannot read the table, as one of an older release
	// may. Then it is started again, as the kubelet does it.
	MayEnd bool
	// Kill has the second replica killed, while the first one is replaced already and others are not.
	Kill bool
	// Mixed, unless nil, is called when the first new replica has joined, and no other one has left yet.
	Mixed func(context.Context) error
}

const (
	// readyAfter is how long a kubelet takes to notice that a replica is ready, by the probe of the example's Deployment.
	readyAfter = 2 * time.Second
	// restarts and backOff are how often, and how soon, a replica that ended at its start is started again.
	restarts, backOff = 5, 5 * time.Second
)

// Update is a phase of a story. It is over when exactly the replicas that run share the slots, and nothing moves.
func (s *Stage) Update(ctx context.Context, u Update) error {
	return s.Phase(ctx, Step{u.Build, s.Rollout(u)})
}

// Rollout replaces all members.
func (s *Stage) Rollout(u Update) func(context.Context, *judge.Phase) error {
	return func(ctx context.Context, in *judge.Phase) error {
		old := s.Fleet.Live()
		for i, p := range old {
			s.Log("rolling update to %s, %d of %d: %s goes", u.Build, i+1, len(old), p.Pod)
			if err := s.comes(ctx, &u); err != nil {
				return err
			}
			if i == 0 && u.Mixed != nil {
				if err := u.Mixed(ctx); err != nil {
					return err
				}
			}
			if err := await.Sleep(ctx, readyAfter); err != nil {
				return err
			}
			end := func() error { return p.Leave() }
			if i == 1 && u.Kill {
				s.Log("%s is killed (SIGKILL)", p.Pod)
				end = func() error { return s.kill(p, in) }
			}
			if err := end(); err != nil {
				return err
			}
			// At most one more than usual at any time. A kubelet takes longer to start the next container anyway.
			if err := until(ctx, stepLimit, p.Lingers); err != nil {
				return err
			}
		}
		return nil
	}
}

// comes starts a new replica of an update, and waits until it has joined, or runs if it is a stock one.
func (s *Stage) comes(ctx context.Context, u *Update) error {
	for n := 0; ; n++ {
		fresh, err := s.Fleet.Start(ctx, u.Command, func(o *Operator) { o.Build, o.Stock = u.Build, u.Stock })
		if err != nil {
			return err
		}
		fresh.MayEnd.Store(u.MayEnd && n < restarts)
		err = until(ctx, stepLimit, func() string {
			switch {
			case !fresh.Live():
				return ""
			case !u.Stock:
				return s.Absent(fresh.Pod)
			case !strings.Contains(string(fresh.Process().Tail()), StockRuns):
				return fresh.Pod + " does not run yet"
			}
			return ""
		})
		if err != nil || fresh.Live() {
			fresh.MayEnd.Store(false)
			return err
		}
		s.Log("%s ended at its start, and is started again in %v: %s", fresh.Pod, backOff,
			lastError(fresh.Process().Tail()))
		if err := await.Sleep(ctx, backOff); err != nil {
			return err
		}
	}
}

// lastError returns the last line of a log that is an error, or else the last line.
func lastError(log []byte) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	for _, line := range slices.Backward(lines) {
		if strings.Contains(line, "\tERROR\t") {
			return line
		}
	}
	return lines[len(lines)-1]
}
