package duty

import (
	"context"
	"fmt"
	"sync"

	"github.com/rota-dev/rota/internal/gate"
)

// tasks are the functions of rota.Go that one run of a duty has started.
type tasks struct {
	run  context.Context //nolint:containedctx // the run's context
	ctx  context.Context //nolint:containedctx // the tasks' context; it ends with run, and when run returns
	stop context.CancelCauseFunc

	mu   sync.Mutex
	over bool
	all  sync.WaitGroup
}

// start implements rota.Go for a duty.
func (d *tasks) start(ctx context.Context, f func(context.Context)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return fmt.Errorf("start a goroutine: %w", gate.ErrNotInFlight)
	}
	task, end := context.WithCancelCause(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(d.ctx, func() { end(context.Cause(d.ctx)) })
	d.all.Go(func() {
		defer unlink()
		defer end(context.Canceled)
		f(task)
	})
	return nil
}

// end ends the tasks and waits until all have returned.
func (d *tasks) end() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	cause := context.Cause(d.run) // run's cause may not have reached d.ctx yet
	if cause == nil {
		cause = context.Canceled
	}
	d.stop(cause)
	d.all.Wait()
}
