package streamtest

import "github.com/rota-dev/rota/internal/delivery/stream"

// task is a step of the driver that is under way.
type task struct {
	stream.Task
	stage    int
	settling stream.Settling
	// items are those of the list at a version, and what look-ups found besides.
	list    *stream.List
	items   []*State
	version string
	// verified are the UIDs of names that the list did not show and that were looked up since.
	verified map[int]int
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
		w.Lose(w.Stored(t.Set, ""), "")
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
		t.list, t.version, t.verified = w.core.NewList(t.Set), text(w.version), map[int]int{}
		t.items = w.items(t.Set)
		for _, is := range t.items {
			t.list.Shows(w.core, is.Object())
		}
		w.say("list of %v at %s: %v", &t.Set, t.version, t.items)
	default:
		// What the store has in the slots although neither the list nor a look-up showed it is looked up.
		names := w.Unlisted(t.list, t.Carried, t.version, t.verified)
		for _, n := range names {
			is := w.server[n]
			w.say("  verified: %v", is)
			t.verified[n] = w.Has[n].UID
			if w.Verify(t.list, &is) {
				t.items = append(t.items, &is)
			}
		}
		if len(names) == 0 {
			w.say("the list of %v is used", &t.Set)
			_, err := w.Grow(t.Task, t.list, t.items, t.version, w.send)
			w.finish()
			return err
		}
	}
	return nil
}
