package rota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// start is an informer that must run before the member joins.
type start struct {
	kind    schema.GroupKind
	started <-chan struct{}
}

// startPatience is when people are told which informer does not run.
const startPatience = 10 * time.Second

// Work calls run, which starts informers and workers and returns when its context has ended, and calls Run beside it. It
// takes the place of leader election's RunOrDie, with run as OnStartedLeading.
//
// When ctx ends this member leaves the rota first, while informers and workers go on; then the context of run ends, and
// Work returns when run has. The error is Run's, or says that run returned before.
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

// awaitInformers waits until the informers of all queues run: a slot that opens before would look empty, and what is
// in it deleted. It returns false when ctx ends.
func (r *Rota) awaitInformers(ctx context.Context) bool {
	r.mu.Lock()
	starts := r.started
	r.mu.Unlock()
	late := time.NewTimer(startPatience)
	defer late.Stop()
	for _, s := range starts {
		for waiting := true; waiting; {
			select {
			case <-s.started:
				waiting = false
			case <-late.C:
				r.log.Info("Waiting for an informer to be started before joining", "kind", s.kind.String())
			case <-ctx.Done():
				return false
			}
		}
	}
	return true
}
