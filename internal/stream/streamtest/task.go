package streamtest

import (
	"strconv"

	"github.com/rota-dev/rota/internal/stream"
)

// task is a step of the driver that is under way.
type task struct {
	stream.Task
	stage    int
	settling stream.Settling
	// items are those of the list at a version, strays the ones of which the watch may not tell.
	items   []state
	strays  []stream.Object
	version int
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
		w.lose(w.stored(t.Set), "")
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
		list := w.core.NewList(t.Set)
		t.version = w.server.version
		for _, o := range w.server.has {
			if w.server.selected(o, t.Set) && o.in && t.Set.Has(o.slot) {
				t.items = append(t.items, o)
				list.Shows(w.core, object(o))
			}
		}
		for _, is := range w.unlisted(list, t.Carried, t.Set) {
			list.Adds(w.core, object(is))
			t.items = append(t.items, is)
		}
		t.strays = list.Strays()
		w.say("list of %v at %d: %v", &t.Set, t.version, t.items)
	default:
		return w.use(t)
	}
	return nil
}

// use has the list of a Grow go to the store.
func (w *world) use(t *task) error {
	w.say("the list of %v is used", &t.Set)
	old := w.stored(t.Carried)
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
	version := strconv.Itoa(t.version)
	w.core.Listing(version)
	w.lose(old, version)
	outs, _ := w.core.Release(nil, t.Task, version, t.strays)
	w.finish()
	return w.send(outs)
}
