package duty

import (
	"time"

	"github.com/rota-dev/rota/internal/work"
)

const (
	// A failed duty restarts after restartFirst, and after twice the time with each further failure, up to restartMost. A
	// run that lasts restartMost counts as a success.
	restartFirst = time.Second
	restartMost  = 5 * time.Minute
)

// failingRuns is how many runs of a duty must fail in a row before that is reported.
const failingRuns = 3

// runs sums up how the runs of a duty ended.
type runs struct {
	// running is when the current run began, 0 if there is none.
	running  time.Duration
	worked   bool          // true if a run has ever succeeded
	since    time.Duration // the first failure after the last success
	failures int
	err      error
	reported bool
}

func (o *runs) succeed() { o.worked, o.failures, o.err = true, 0, nil }

func (o *runs) fail(now time.Duration, err error) {
	if o.failures++; o.failures == 1 {
		o.since = now
	}
	o.err = err
}

// Failing reports whether the duty keeps failing on this member.
func (d *Duty) Failing() (work.Failing, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o, now := &d.outcomes, d.env.Now()
	if o.running > 0 && now-o.running >= restartMost {
		o.succeed()
	}
	if d.term == nil || o.failures < failingRuns || now-o.since < work.FailingAfter {
		return work.Failing{}, false
	}
	return work.Failing{For: now - o.since, Times: o.failures, Never: !o.worked, Err: o.err}, true
}

// Turn reports whether a change must be reported: the duty keeps failing now, or no longer does.
func (d *Duty) Turn(failing bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	turned := failing != d.outcomes.reported && (failing || d.outcomes.failures == 0)
	if turned {
		d.outcomes.reported = failing
	}
	return turned
}
