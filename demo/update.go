package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/await"
)

// Update is a rolling update of all replicas, one by one, with one more than usual meanwhile, as a Deployment with
// maxSurge 1 and maxUnavailable 0 does it.
type Update struct {
	// Build is that of the new replicas. Command starts them; empty: Options.Command.
	Build   string
	Command []string
	// MayEnd says that a new replica may end at its start, because it cannot read the table, as one of an older release
	// may. Then it is started again, as the kubelet does it.
	MayEnd bool
	// Kill has the second replica killed, while the first one is replaced already and others are not.
	Kill bool
	// Mixed, unless nil, is called when the first new replica has joined, and no other one has left yet.
	Mixed func(context.Context) error
}

// readyAfter is how long a kubelet takes to notice that a replica is ready, with the probe of the example's Deployment.
const readyAfter = 2 * time.Second

// update is the phase of a rolling update.
func (e *engine) update(u Update) func(context.Context, *phaseRun) error {
	if len(u.Command) == 0 {
		u.Command = e.o.Command
	}
	return func(ctx context.Context, run *phaseRun) error {
		old := e.live()
		for i, p := range old {
			e.view.title(fmt.Sprintf("rolling update to %s, %d of %d: %s goes", u.Build, i+1, len(old), p.pod))
			if err := e.comes(ctx, &u); err != nil {
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
			end := func() error { return p.End(syscall.SIGTERM) }
			if i == 1 && u.Kill {
				e.view.log("%s is killed (SIGKILL)", p.pod)
				end = func() error { return e.kill(p, run) }
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

// How often, and how soon, a replica is started again that has ended at its start.
const (
	restarts     = 5
	restartAfter = 5 * time.Second
)

// comes starts a new replica of an update, and waits until it has joined.
func (e *engine) comes(ctx context.Context, u *Update) error {
	for n := 0; ; n++ {
		fresh, err := e.startAs(u.Build, u.Command)
		if err != nil {
			return err
		}
		fresh.mayEnd.Store(u.MayEnd && n < restarts)
		err = until(ctx, stepLimit, func() string {
			if !fresh.Running() {
				return ""
			}
			return e.absent(fresh.pod)
		})
		if err != nil || fresh.Running() {
			fresh.mayEnd.Store(false)
			return err
		}
		e.view.log("%s ended at its start, and is started again in %v: %s", fresh.pod, restartAfter, lastError(fresh.Tail()))
		if err := await.Sleep(ctx, restartAfter); err != nil {
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
