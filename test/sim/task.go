package sim

import (
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/test/streamtest"
)

// kick has the driver look whether there is something to do.
func (in *informer) kick() {
	if !in.busy {
		in.busy = true
		in.soon(in.drive)
	}
}

// drive brings the store in step with the slots that are wanted, one task after the other.
func (in *informer) drive() {
	t := in.core.Next(in.wanted)
	switch t.Kind {
	case stream.Nothing:
		in.busy = false
	case stream.Drop:
		in.core.Observe()
		in.task(t, func() { in.Lose(in.Stored(t.Set, ""), "") }, func() {
			in.core.Unobserve()
			in.drive()
		})
	case stream.Settle:
		settling := in.core.Settle(t)
		in.task(t, func() {
			in.core.Settled(settling)
			in.changed()
		}, in.drive)
	case stream.Grow:
		in.grow(t)
	}
}

// task does a part of a task after a moment, unless a list of the whole has overtaken it, and then what follows.
func (in *informer) task(t stream.Task, do, then func()) {
	in.soon(func() {
		in.job(func() {
			if in.core.Valid(t) {
				do()
			}
			then()
		})
	})
}

// grow lists slots while the events of their objects are held back.
func (in *informer) grow(t stream.Task) {
	w := in.n.w
	end := func() {
		in.core.Unobserve()
		in.drive()
	}
	in.core.Observe()
	in.core.Warm(t.Set)
	in.task(t, func() {
		if rest := t.Set.Minus(in.asked); !rest.Empty() {
			in.reopen(w.delay(time.Millisecond, 30*time.Millisecond))
		}
	}, func() {
		in.list(in.n.Link.slow, func() bool { return !in.core.Valid(t) }, func(version uint64) {
			if version == 0 {
				end()
				return
			}
			l := &listing{List: in.core.NewList(t.Set), items: in.items(t.Set, version), version: version,
				verified: map[int]int{}}
			for _, item := range l.items {
				l.Shows(in.core, item.Object())
			}
			w.Counts.Grown++
			w.logf("%s lists slots %v at version %d", in.n.ID, t.Set, version)
			in.use(t, l, end)
		})
	})
}

// listing is a list of a task's slots, and what look-ups found besides.
type listing struct {
	*stream.List
	items    []*streamtest.State
	version  uint64
	verified map[int]int // UIDs by name
}

// use has a list go to the store after a moment. Where it does not show what the store has then, that is looked up
// first.
func (in *informer) use(t stream.Task, l *listing, end func()) {
	again := false
	in.task(t, func() {
		names := in.Unlisted(l.List, t.Carried, text(l.version), l.verified)
		if again = len(names) > 0; !again {
			in.grown(t, l)
			return
		}
		for _, name := range names {
			l.verified[name] = in.Has[name].UID
		}
		l.items = append(l.items, in.verify(l.List, names)...)
	}, func() {
		if again {
			in.use(t, l, end)
			return
		}
		end()
	})
}

// grown takes the slots of a list into the stream.
func (in *informer) grown(t stream.Task, l *listing) {
	v, err := in.Grow(t, l.List, l.items, text(l.version), in.send)
	in.comesBack(err)
	in.heed(v)
	in.changed()
}
