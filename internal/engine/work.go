package engine

import (
	"context"
	"errors"
	"fmt"
)

// Work implements rota.Rota.Work.
func (r *Engine) Work(ctx context.Context, run func(ctx context.Context)) error {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	joined, leave := context.WithCancel(ctx)
	defer leave()
	done := make(chan struct{})
	early := false
	go func() {
		defer close(done)
		run(inner)
		early = inner.Err() == nil
		leave() // there are no workers any more
	}()
	err := r.Run(joined)
	stop()
	<-done
	if early && ctx.Err() == nil {
		err = errors.Join(err, fmt.Errorf("rota %s: the work ended before its context", r.Name()))
	}
	return err
}
