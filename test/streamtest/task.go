package streamtest

import (
	"strconv"

	"github.com/rota-dev/rota/internal/delivery/stream"
)

// task is a step of the driver that is under way.
type task struct {
	stream.Task
	stage    int
	settling stream.Settling
	// items are those of the list at a version, and what look-ups found besides.
	list    *stream.List
	items   []state
	version int
	// verified are the UIDs of names that the list did not show and that were looked up since; 0 where none was.
	verified []int
}

// drive does a part of what is to be done next to bring the store in step with the slots held.
func (w *world) drive() error {
	t := w.task
	if t != nil && !w.core.Valid(t.Task) {
		w.finish()
		return nil
	}
	if t == nil {
		w.start()
		return nil
	}
	switch t.Kind {
	case stream.Drop:
		w.lose(w.stored(t.Set, ""), "")
		w.finish()
	case stream.Settle:
		w.core.Settled(t.settling)
		w.finish()
	case stream.Grow:
		return w.grow(t)
	case stream.Nothing:
	}
	return nil
}

// start begins the next task, if there is one.
func (w *world) start() {
	next := w.core.Next(w.held)
	if next.Kind == stream.Nothing {
		return
	}

	w.task = &task{Task: next}
	w.say("task %d: %v", next.Kind, &w.task.Set)
	if next.Kind == stream.Settle {
		w.task.settling = w.core.Settle(next)
		return
	}
	w.core.Observe()
}

func (w *world) finish() {
	if w.task.Kind != stream.Settle {
		w.core.Unobserve()
	}
	w.task = nil
}

func (w *world) grow(t *task) error {
	t.stage++
	switch t.stage {
	case 1:
		w.core.Warm(t.Set)
		if rest := t.Set.Minus(w.asked); !rest.Empty() {
			w.reopen()
		}
	case 2:
		t.list, t.version, t.verified = w.core.NewList(t.Set), w.server.version, make([]int, len(w.store))
		for _, o := range w.server.has {
			if w.server.selected(o, t.Set) && o.in && t.Set.Has(o.slot) {
				t.items = append(t.items, o)
				t.list.Shows(w.core, object(o))
			}
		}
		w.say("list of %v at %d: %v", &t.Set, t.version, t.items)
	default:
		if !w.verify(t) {
			return w.use(t)
		}
	}
	return nil
}

// verify looks up what the store has in the slots although neither the list nor a look-up showed it. It returns false
// if there is nothing of that kind.
func (w *world) verify(t *task) (found bool) {
	if !w.cfg.Selects {
		return false
	}
	stored := w.stored(t.Carried, strconv.Itoa(t.version))
	for n, was := range w.store {
		if _, has := stored[n]; !has || t.verified[n] == was.uid || t.list.Listed(object(was).Name) {
			continue
		}
		found, t.verified[n] = true, was.uid
		is, exists := w.lookUpIn(t.Set, n)
		w.say("  verified: %v", is)
		if exists {
			t.list.Adds(w.core, object(is))
			t.items = append(t.items, is)
		}
	}
	return found
}

// use has the list of a Grow go to the store.
func (w *world) use(t *task) error {
	w.say("the list of %v is used", &t.Set)
	version := strconv.Itoa(t.version)
	old := w.stored(t.Carried, version)
	for _, o := range t.items {
		_, had := old[o.name]
		delete(old, o.name)
		if !w.core.Item(object(o)) || had && !w.cfg.Moves && w.store[o.name].version == o.version {
			continue
		}
		if err := w.send([]stream.Out{{Action: stream.Put, Type: stream.Added, Object: object(o)}}); err != nil {
			return err
		}
	}
	w.core.Listing(version)
	w.lose(old, version)
	outs, _ := w.core.Release(nil, t.Task, version, t.list.Strays())
	w.finish()
	return w.send(outs)
}
