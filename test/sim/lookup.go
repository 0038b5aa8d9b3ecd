package sim

import (
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/test/streamtest"
)

// The shortest and the longest time between two tries of a look-up that nobody answers.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// confirm looks up what is in doubt, now and when it is due again.
func (in *informer) confirm() {
	if _, _, doubted := in.core.Size(); doubted == 0 {
		return
	}
	in.looks++
	mine := in.looks
	due, next := in.core.Due(in.n.w.now)
	for _, d := range due {
		in.soon(func() { in.lookUp(d) })
	}
	in.n.w.after(next, func() {
		in.n.local(func() {
			if in.looks == mine {
				in.confirm()
			}
		})
	})
}

// lookUp reads an object by its name, from a server that may lag, and acts on the answer.
func (in *informer) lookUp(d *stream.Doubt) {
	w, o := in.n.w, &in.n.w.objects
	least, _, current := in.core.Asks(d)
	switch {
	case !current:
		return
	case in.silent():
		in.core.Again(d, w.now, firstRetry, lastRetry)
		in.confirm()
		return
	}
	version := max(in.shown(), number(least))
	version += uint64(w.rng.Int64N(int64(w.version - version + 1)))
	w.Counts.LookedUp++
	var found *stream.Object
	if is := o.asOf(streamtest.NameOf(d.Name), version); is.Exists {
		obj := is.Object()
		found = &obj
	}
	in.soon(func() {
		in.job(func() {
			outs, ended := in.core.LookedUp(nil, d, found, text(version), w.now)
			in.comesBack(in.send(outs))
			if ended {
				in.core.Ended(d)
			}
			in.changed()
			in.confirm()
		})
	})
}
