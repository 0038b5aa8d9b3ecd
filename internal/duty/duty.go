package duty

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

// Queue is the queue name of duties in the gate's reports.
const Queue = "rota.dev/duty"

// Begin begins a run of a duty and returns. done is called once, in any goroutine, when the run and everything it
// started have ended.
type Begin func(ctx context.Context, done func(error))

// Function returns a Begin that calls run in a separate goroutine.
func Function(run func(context.Context) error) Begin {
	// A panic ends the process, so nothing needs to be undone then.
	return func(ctx context.Context, done func(error)) { go func() { done(run(ctx)) }() }
}

// Duty is a duty that this process can do. Its methods may be called concurrently.
type Duty struct {
	env   *Env
	name  string
	begin Begin // nil for the rota's own duties, which ask the gate each time

	mu sync.Mutex
	// term is the current term, nil if this member does not have the duty or is giving it up.
	term *term
	// busy is true while a run is under way, in the current term or an earlier one.
	busy bool
	// epoch is the epoch of the last term. finished is the epoch for which a run has returned nil.
	epoch, finished uint64
	// goesOn is true if a run continued until its context ended.
	goesOn bool
	// ctx is the context of the current run, nil if there is none, and cancel ends it.
	ctx    context.Context //nolint:containedctx // the duty is the context's life
	cancel context.CancelCauseFunc
	// stopped is when ctx ended, 0 if it has not.
	stopped  time.Duration
	restarts int
	outcomes runs
}

// term is the time from an Open of a duty's slot to its Drain or Shut.
type term struct {
	base  context.Context //nolint:containedctx // the incarnation's context
	slot  slot.Slot
	epoch uint64
	delay time.Duration // before the next restart
}

// open begins a term. A run from an earlier term ends first.
func (d *Duty) open(t *term) {
	t.delay = restartFirst
	d.mu.Lock()
	d.term = t
	if d.epoch != t.epoch { // it was elsewhere: earlier failures here do not count
		d.epoch, d.outcomes.failures, d.outcomes.err, d.outcomes.reported = t.epoch, 0, nil, false
	}
	idle := !d.busy
	d.busy = true
	d.mu.Unlock()
	if idle {
		d.run(t)
	}
}

// stop ends the term.
func (d *Duty) stop(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term == nil {
		return
	}
	d.term = nil
	if d.cancel != nil {
		d.stopped = d.env.Now()
		d.cancel(cause)
	}
}

// run runs the duty once in a term. Its caller has set busy.
func (d *Duty) run(t *term) {
	entered, leave, verdict := d.env.Gate.Enter(t.base, t.slot, gate.Key{Queue: Queue, Name: d.name}, false)
	if verdict != gate.Admitted {
		d.next(t) // it is drained, lost or lapsed; if it stays, it is opened again
		return
	}
	started := &tasks{}
	entered = work.Admitted{Gate: d.env.Gate, Slot: t.slot, Context: entered, Start: started.start}.In(entered)
	ctx, cancel := context.WithCancelCause(withHeld(entered, entered))
	started.run = ctx
	started.ctx, started.stop = context.WithCancelCause(ctx)
	d.env.AfterFunc(ctx, func() { d.ends(ctx) })
	over := func() {
		leave()
		cancel(context.Canceled)
		d.next(t)
	}
	if !d.begins(ctx, t, cancel) {
		over()
		return
	}
	d.begin(ctx, func(err error) {
		started.end()
		wait, again := d.end(ctx, t, err)
		over()
		if again { // a restart must not come before this run has ended
			d.env.After(wait, func() { d.restart(t) })
		}
	})
}

// next continues after a run in a term, with a newer term if one has begun meanwhile.
func (d *Duty) next(served *term) {
	d.mu.Lock()
	t := d.term
	more := t != nil && t != served
	d.busy = more
	d.mu.Unlock()
	if more {
		d.run(t)
	}
}

// restart runs the duty again in a term, unless the term is over.
func (d *Duty) restart(t *term) {
	d.mu.Lock()
	due := d.term == t
	if due {
		d.busy = true
		d.restarts++
	}
	d.mu.Unlock()
	if due {
		d.run(t)
	}
}

// begins records that a run begins, unless the term is over or the duty has finished in it.
func (d *Duty) begins(ctx context.Context, t *term, cancel context.CancelCauseFunc) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term != t || d.finished == t.epoch {
		return false
	}
	d.ctx, d.cancel, d.stopped = ctx, cancel, 0
	d.outcomes.running = d.env.Now()
	return true
}

// ends records when the context of the current run ends.
func (d *Duty) ends(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == ctx && d.stopped == 0 && gate.CutShort(ctx) {
		d.stopped = d.env.Now()
	}
}

// end records that a run has ended. It returns whether the run has to be repeated, and after what delay.
func (d *Duty) end(ctx context.Context, t *term, err error) (wait time.Duration, again bool) {
	log := d.env.Log.WithValues("duty", d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	lasted := d.env.Now() - d.outcomes.running
	brief, long := lasted < restartFirst, lasted >= restartMost
	d.ctx, d.cancel, d.stopped, d.outcomes.running = nil, nil, 0, 0
	switch {
	case gate.CutShort(ctx):
		d.goesOn = d.goesOn || err == nil
		if err != nil && !errors.Is(err, context.Canceled) {
			log.V(1).Info("Duty was cut short", "cause", context.Cause(ctx).Error(), "error", err.Error())
		}
		if long {
			d.outcomes.succeed()
		}
		return 0, false
	case err == nil:
		log.Info("Duty has finished", "epoch", t.epoch)
		if brief && d.goesOn {
			log.Error(nil, "The duty came here again and has finished at once, although it went on until it had to end when it "+
				"was here before. If it runs something that works once, such as a controller whose work queue was shut down when "+
				"the duty ended, no member does it now: create that in the duty's function", "epoch", t.epoch)
		}
		d.finished = t.epoch
		d.outcomes.succeed()
		return 0, false
	}
	log.Error(err, "Duty failed; it starts again")
	if long {
		t.delay = restartFirst
		d.outcomes.succeed()
	}
	d.outcomes.fail(d.env.Now(), err)
	wait = t.delay
	t.delay = min(2*t.delay, restartMost)
	return wait, true
}

// Name returns the duty's name.
func (d *Duty) Name() string { return d.name }

// Runs returns whether the duty runs, and how often it was restarted after failures.
func (d *Duty) Runs() (running bool, restarts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx != nil, d.restarts
}

// StoppedAt returns when the context of the current run ended, 0 if it has not or there is no run.
func (d *Duty) StoppedAt() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}
