package rota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

const (
	// dutyQueue is the queue name of duties in the gate's reports.
	dutyQueue = "rota.dev/duty"
	// A duty that failed starts again after restartFirst, and after twice the time with each failure, up to restartMost. A
	// run as long as restartMost counts as a success.
	restartFirst = time.Second
	restartMost  = 5 * time.Minute
	// failingRuns is how many runs of a duty must fail in a row before that is reported.
	failingRuns = 3
)

// Duty declares a duty: work that cannot be sharded, and that exactly one member of the rota does at a time. Call it
// before Run (but see JoinAfter). Members may differ in their duties. The rota spreads its duties evenly over the
// members that have declared them, and moves them as it moves slots.
//
// run is called in a goroutine of its own when the duty comes to this member. It is not called again before it has
// returned. Informers that NewInformer made of kinds that are not sharded then show what the duty's former owner wrote
// with clients of WrapConfig.
//
// The context of run carries the epoch of the duty (EpochFrom). Write with it, or with one derived from it,
// through clients of WrapConfig: such writes are refused once the duty is lost. The context ends, and run has to
// return, when
//
//   - the duty is handed over, because a member joined, or this one leaves (ErrHandover). The duty's next owner
//     waits until run has returned. Until then run may write with context.WithoutCancel, such as to store its state.
//     If run does not return within 5 s, that is logged and an event says so; nothing but this duty waits for it. When
//     this member leaves, it waits for LeaveTimeout at most.
//   - the Lease was not renewed in time, or the duty was lost (ErrExpired or ErrLost). Others may be about to
//     begin, and writes are refused. If this member was expelled, Run returns an error unless run returns within
//     RenewDeadline: a process must not join again while something of its former life goes on.
//
// If run returns nil while it has the duty, the duty is finished until it comes to this member again or goes to another
// one, which runs it anew. If run returns an error, it is logged, and run is called again after 1 s, then 2 s, and so
// on up to 5 minutes. A run of 5 minutes or more sets that back. A panic in run ends the process.
//
// The name is one printable word without a comma, of at most 128 characters, and the same on all members. Names that
// begin with "rota.dev/" are taken. A rota may have slot.MaxDuties duties, those of all builds together. What has no
// room is done by nobody, and the event TableCut tells of it.
//
// While members take part that are too old to know of duties, as in a rollout, nobody does them.
//
// The rota has duties of its own, which count apart: comparing what members hold with what there is, and labelling.
func (r *Rota) Duty(name string, run func(ctx context.Context) error) error {
	if table.OwnDuty(name) {
		return fmt.Errorf("duty %s: names that begin with %q are the rota's own", name, table.OwnDuties)
	}
	if run == nil {
		return fmt.Errorf("duty %s: its function is nil", name)
	}
	return r.declareDuty(name, run)
}

func (r *Rota) declareDuty(name string, run func(ctx context.Context) error) error {
	if err := table.ValidDuty(name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.duties.mu.Lock()
	defer r.duties.mu.Unlock()
	switch {
	case r.late():
		return fmt.Errorf("duty %s: Run was called before: declare duties before the member starts, or have it wait for "+
			"them with JoinAfter of the rota.Rota", name)
	case r.duties.of[name] != nil:
		return fmt.Errorf("duty %s: there is one of that name already", name)
	case len(r.duties.of) >= slot.MaxDuties:
		return fmt.Errorf("duty %s: a rota may have %d duties", name, slot.MaxDuties)
	}
	r.duties.add(&duty{rota: r, name: name, run: run})
	return nil
}

// duty is a duty that this process can do.
type duty struct {
	rota *Rota
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
	outcomes dutyRuns
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

func (d *duty) open(t *term) {
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
func (d *duty) stop(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term == nil {
		return
	}
	close(d.term.over)
	d.term = nil
	if d.cancel != nil {
		d.stopped = d.rota.now()
		d.cancel(cause)
	}
}

// work serves terms until there is none.
func (d *duty) work() {
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

// serve runs the duty until it has finished or the term is over.
func (d *duty) serve(t *term) {
	delay := restartFirst
	for {
		again, long := d.once(t)
		if !again {
			return
		}
		if long {
			delay = restartFirst
		}
		select {
		case <-time.After(delay):
		case <-t.over:
			return
		}
		delay = min(2*delay, restartMost)
		d.mu.Lock()
		d.restarts++
		d.mu.Unlock()
	}
}

// once runs the duty once. again says that it failed and has to run again. long says that it ran long.
func (d *duty) once(t *term) (again, long bool) {
	r := d.rota
	entered, leave, verdict := r.gate.Enter(t.base, t.slot, gate.Key{Queue: dutyQueue, Name: d.name}, false)
	if verdict != gate.Admitted {
		return false, false // it is drained, lost or lapsed; if it stays, it is opened again
	}
	tasks := &dutyTasks{}
	entered = work.Admitted{Gate: r.gate, Slot: t.slot, Context: entered, Start: tasks.start}.In(entered)
	ctx, cancel := context.WithCancelCause(adapter.WithHeld(entered, entered))
	defer cancel(context.Canceled)
	tasks.run = ctx
	tasks.ctx, tasks.stop = context.WithCancelCause(ctx)
	context.AfterFunc(ctx, func() { d.ends(ctx) })
	if !d.begin(ctx, t, cancel) {
		leave()
		return false, false
	}
	begun := r.now()
	// A panic ends the process, so nothing is to be undone then.
	err := d.run(ctx)
	tasks.end()
	long = r.now()-begun >= restartMost
	again = d.end(ctx, t, err, long)
	leave()
	return again, long
}

// begin notes that a run begins, unless the term is over or the duty has finished in it.
func (d *duty) begin(ctx context.Context, t *term, cancel context.CancelCauseFunc) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.ended() || d.finished == t.epoch {
		return false
	}
	d.ctx, d.cancel, d.stopped = ctx, cancel, 0
	d.outcomes.running = d.rota.now()
	return true
}

// ends notes when the context of the present run ends.
func (d *duty) ends(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx == ctx && d.stopped == 0 && gate.CutShort(ctx) {
		d.stopped = d.rota.now()
	}
}

// end notes that a run has ended, and says whether it has to be repeated.
func (d *duty) end(ctx context.Context, t *term, err error, long bool) (again bool) {
	log := d.rota.log.WithValues("duty", d.name)
	d.mu.Lock()
	defer d.mu.Unlock()
	brief := d.rota.now()-d.outcomes.running < restartFirst
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
	d.outcomes.fail(d.rota.now(), err)
	return true
}

// dutyRuns sums up how the runs of a duty ended.
type dutyRuns struct {
	// running is since when the present run goes on; 0: there is none.
	running  time.Duration
	worked   bool          // one did, ever
	since    time.Duration // of the first failure after the last success
	failures int
	err      error
	told     bool
}

func (o *dutyRuns) succeed() { o.worked, o.failures, o.err = true, 0, nil }

func (o *dutyRuns) fail(now time.Duration, err error) {
	if o.failures++; o.failures == 1 {
		o.since = now
	}
	o.err = err
}

// failing says whether the duty keeps failing on this member.
func (d *duty) failing() (Failing, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, now := &d.outcomes, d.rota.now()
	if o.running > 0 && now-o.running >= restartMost {
		o.succeed()
	}
	if d.term == nil || o.failures < failingRuns || now-o.since < failingAfter {
		return Failing{}, false
	}
	return Failing{Duty: d.name, For: now - o.since, Reconciles: o.failures, Never: !o.worked, Err: o.err}, true
}

// turn reports whether a change has to be reported: the duty keeps failing now, or does not any more.
func (d *duty) turn(failing bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	turned := failing != d.outcomes.told && (failing || d.outcomes.failures == 0)
	if turned {
		d.outcomes.told = failing
	}
	return turned
}

// stoppedAt is when the context of the present run ended; 0: it has not, or there is no run.
func (d *duty) stoppedAt() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}
