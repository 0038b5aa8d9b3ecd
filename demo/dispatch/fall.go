package dispatch

import (
	"context"
	"errors"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/process"
)

// fallen is an error if a process ended that should not.
func (e *engine) fallen() error {
	for _, p := range e.processes() {
		if err := p.Failure(); err != nil {
			return err
		}
	}
	return nil
}

// endEarly is what happens when a process has ended that should not: the others take over what it had, and what was
// shown until then can be judged. Before the load has begun there is nothing to judge, and it returns an error.
func (e *engine) endEarly(ctx context.Context, fall error) error {
	e.log("The story ends early: a process ended, and the demo had not told it to")
	if len(e.phases) == 0 {
		process.Tell(fall, e.log)
		return errors.New(process.How(fall) + " before there was anything to judge")
	}
	lost := e.noteFallen()
	if len(e.tier()) > 0 {
		if err := e.quiet(ctx); err != nil { // the report tells what was not taken over
			e.log("What it had is not taken over: %v", err)
		}
	}
	if lost { // until its keys are taken again
		return await.Sleep(ctx, e.o.TakeLength+stopLonger)
	}
	return ctx.Err()
}

// noteFallen notes what those had that have ended by themselves, and reports whether workers are among them.
func (e *engine) noteFallen() (workers bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, d := range e.dispatchers {
		if d.Failure() != nil {
			c := e.crashOf(d)
			c.at, _ = d.Ended()
			e.crashes = append(e.crashes, c)
		}
	}
	for _, w := range e.workers {
		if w.Failure() != nil {
			at, _ := w.Ended()
			e.losses = append(e.losses, loss{worker: w.name, at: at})
			workers = true
		}
	}
	return workers
}
