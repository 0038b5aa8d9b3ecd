package demo

import (
	"context"
	"errors"

	"github.com/rota-dev/rota/test/process"
)

// fallen is an error if a process ended that should not. What the audience kills from a shell while it has its turn is
// like what it kills with a button.
func (e *engine) fallen() error {
	for _, p := range e.all() {
		err := p.Failure()
		if err == nil || p.mayEnd.Load() {
			continue
		}
		var end *process.EndError
		if e.hand != nil && errors.As(err, &end) && end.Killed() && e.hand.open() {
			p.mayEnd.Store(true)
			e.view.log("%s, by nobody of the demo: killed by hand, then", end.How())
			e.noteFall(p)
			continue
		}
		return err
	}
	if e.manager != nil {
		return e.manager.Failure()
	}
	return nil
}

// noteFall notes what a replica had that has ended, as kill does before it kills one. By then the table may have
// changed, but nobody takes slots from the dead before their lease is over.
func (e *engine) noteFall(p *replica) {
	run := &phaseRun{name: "end of " + p.pod}
	e.noteVictim(p, run)
	if at, ok := p.Ended(); ok {
		run.killed = at
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kills = append(e.kills, run)
}

// endEarly is what happens when a process has ended that should not: the others take over what it had, and what was
// shown until then can be judged. Before the load has begun there is nothing to judge, and it returns an error.
func (e *engine) endEarly(ctx context.Context, fall error) error {
	e.view.title("the story ends early: a process ended, and the demo had not told it to")
	if e.baseline.end == 0 {
		process.Tell(fall, e.view.log)
		return errors.New(process.How(fall) + " before there was anything to judge")
	}
	for _, p := range e.all() {
		if err := p.Failure(); err != nil && !p.mayEnd.Load() {
			e.noteFall(p)
		}
	}
	if !e.o.Migrate && len(e.live()) > 0 {
		if err := e.quiet(ctx); err != nil { // the report tells which slots have no owner
			e.view.log("What it had is not taken over: %v", err)
		}
	}
	return ctx.Err()
}

// bound returns the processes that may not end by themselves.
func (e *engine) bound() (out []*process.Process) {
	for _, p := range e.all() {
		if !p.mayEnd.Load() {
			out = append(out, p.Process)
		}
	}
	if e.manager != nil {
		out = append(out, e.manager)
	}
	return out
}
