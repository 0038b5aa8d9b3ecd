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

// Duty is a duty that this process can do. Its methods may be called concurrently.
type Duty struct {
	env  *Env
	name string
	run  func(context.Context) error // nil: it is one of the rota's own, which ask the gate each time

	mu sync.Mutex
	// term is the present term; nil: this member does not have the duty, or gives it up.
	term *term
	// working says that a goroutine serves the terms, one after the other.
	working bool
	// epoch is that of the last term, finished the one for which run has returned nil.
	epoch, finished uint64
	// goesOn says that a run went on until its context ended.
	goesOn bool
	// ctx is that of the present run, and cancel ends it; nil: there is none.
	ctx    context.Context //nolint:containedctx // the duty is the context's life
	cancel context.CancelCauseFunc
	// stopped is when that context ended; 0: it has not.
	stopped  time.Duration
	restarts int
	outcomes runs
}

// term is the time from an Open of a duty's slot to its Drain or Shut.
type term struct {
	base  context.Context //nolint:containedctx // that of the incarnation
	slot  slot.Slot
	epoch uint64
	over  chan struct{}
}

func (t *term) ended() bool {
	select {
	case <-t.over:
		return true
	default:
		return false
	}
}

func (d *Duty) open(t *term) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term != nil {
		close(d.term.over)
	}
	d.term = t
	if d.epoch != t.epoch { // it was elsewhere: what failed here before says nothing now
		d.epoch, d.outcomes.failures, d.outcomes.err, d.outcomes.told = t.epoch, 0, nil, false
	}
	if !d.working {
		d.working = true
		go d.work()
	}
}

// stop ends the term.
func (d *Duty) stop(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term == nil {
		return
	}
	close(d.term.over)
	d.term = nil
	if d.cancel != nil {
		d.stopped = d.env.Now()
		d.cancel(cause)
	}
}

// work serves terms until there is none.
func (d *Duty) work() {
	var served *term
	for {
		d.mu.Lock()
		t := d.term
		if d.working = t != nil && t != served; !d.working {
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		d.serve(t)
		served = t
	}
}

// once runs the duty once. again says that it failed and has to run again. long says that it ran long.
func (d *Duty) once(t *term) (again, long bool) {
	entered, leave, verdict := d.env.Gate.Enter(t.base, t.slot, gate.Key{Queue: Queue, Name: d.name}, false)
	if verdict != gate.Admitted {
		return false, false // it is drained, lost or lapsed; if it stays, it is opened again
	}
	started := &tasks{}
	entered = work.Admitted{Gate: d.env.Gate, Slot: t.slot, Context: entered, Start: started.start}.In(entered)
	ctx, cancel := context.WithCancelCause(withHeld(entered, entered))
	defer cancel(context.Canceled)
	started.run = ctx
	started.ctx, started.stop = context.WithCancelCause(ctx)
	context.AfterFunc(ctx, func() { d.ends(ctx) })
	if !d.begin(ctx, t, cancel) {
		leave()
		return false, false
	}
	begun := d.env.Now()
	// A panic ends the process, so nothing is to be undone then.
	err := d.run(ctx)
	started.end()
	long = d.env.Now()-begun >= restartMost
	again = d.end(ctx, t, err, long)
	leave()
	return again, long
}

// begin notes that a run begins, unless the term is over or the duty has finished in it.
func (d *Duty) begin(ctx context.Context, t *term, cancel context.CancelCauseFunc) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.ended() || d.finished == t.epoch {
		return false
	}
	d.ctx, d.cancel, d.stopped = ctx, cancel, 0
	d.outcomes.running = d.env.Now()
	return true
}

// ends notes when the context of the present run ends.
func (d *Duty) ends(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == ctx && d.stopped == 0 && gate.CutShort(ctx) {
		d.stopped = d.env.Now()
	}
}

// end notes that a run has ended, and says whether it has to be repeated.
func (d *Duty) end(ctx context.Context, t *term, err error, long bool) (again bool) {
	log := d.env.Log.WithValues("duty", d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	brief := d.env.Now()-d.outcomes.running < restartFirst
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
		return false
	case err == nil:
		log.Info("Duty has finished", "epoch", t.epoch)
		if brief && d.goesOn {
			log.Error(nil, "The duty came here again and has finished at once, although it went on until it had to end when it "+
				"was here before. If it runs something that works once, such as a controller whose work queue was shut down when "+
				"the duty ended, nobody does it now: make that in the duty's function", "epoch", t.epoch)
		}
		d.finished = t.epoch
		d.outcomes.succeed()
		return false
	}
	log.Error(err, "Duty failed; it starts again")
	if long {
		d.outcomes.succeed()
	}
	d.outcomes.fail(d.env.Now(), err)
	return true
}

// Name is the duty's name.
func (d *Duty) Name() string { return d.name }

// Runs says whether it runs, and how often it was started again after it had failed.
func (d *Duty) Runs() (running bool, restarts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ctx != nil, d.restarts
}

// StoppedAt is when the context of the present run ended; 0: it has not, or there is no run.
func (d *Duty) StoppedAt() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}
