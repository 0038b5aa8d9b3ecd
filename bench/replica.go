package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/process"
)

// endLimit is how long a replica may take to stop.
const endLimit = 2 * time.Minute

// replica is a process that runs the operator, or a sharder.
type replica struct {
	*process.Process
	pod    string
	number int
}

// ask asks a question and decodes the answer.
func ask[T any](ctx context.Context, r *replica, question string) (out T, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := r.Ask(ctx, question, question)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal([]byte(text), &out)
}

func (r *replica) reading(ctx context.Context) (reading, error) {
	return ask[reading](ctx, r, askReading)
}

// end ends the process: by SIGTERM, or by SIGKILL if it crashes.
func (r *replica) end(ctx context.Context, crashes bool) error {
	if crashes {
		r.Kill()
		return nil
	}
	if err := r.End(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.Done():
		return r.Failure()
	case <-time.After(endLimit):
		return fmt.Errorf("%s: %s", r.pod, r.Lingers())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ready waits until it works, as its readiness check would.
func (r *replica) ready(ctx context.Context) error {
	return until(ctx, r.pod+" is not ready", func() (bool, error) {
		now, err := r.reading(ctx)
		return now.Working, err
	})
}

const (
	// pollEvery is the resolution of times.
	pollEvery = 50 * time.Millisecond
	// settleLimit bounds each wait for replicas.
	settleLimit = 30 * time.Minute
)

// until calls check until it returns true or an error, for settleLimit at most.
func until(ctx context.Context, lacks string, check func() (bool, error)) error {
	for end := time.Now().Add(settleLimit); ; {
		if ok, err := check(); ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s after %v", lacks, settleLimit)
		}
		if err := await.Sleep(ctx, pollEvery); err != nil {
			return err
		}
	}
}
