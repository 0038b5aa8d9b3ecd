package rota

import (
	"context"
	"errors"
	"fmt"
)

// Work calls Run, and beside it run, which starts informers and workers and returns when its context has ended. It
// replaces RunOrDie of leader election, with run as OnStartedLeading.
//
// The member joins once the workers of all controllers have asked their queues for work. So run must not wait for
// Joined before it starts them.
//
// When ctx ends, this member leaves the rota first, while informers and workers go on. Then the context of run ends,
// and Work returns when run has. The error is Run's, or says that run returned too early.
func (r *Rota) Work(ctx context.Context, run func(ctx context.Context)) error {
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
		leave() // nobody works here any more
	}()
	err := r.Run(joined)
	stop()
	<-done
	if early && ctx.Err() == nil {
		err = errors.Join(err, fmt.Errorf("rota %s: the work ended by itself", r.Name()))
	}
	return err
}
