package streamtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

// check says what is wrong about what the stream says that it has reached.
func (w *world) check() error {
	if w.whole != nil {
		return nil
	}
	for s := range slot.Slot(w.cfg.Slots) {
		if !w.held.Has(s) || !w.core.Carries(s) || !w.core.Ready(s) {
			continue
		}
		for v := w.version; v > 0 && v+40 > w.version; v-- {
			if !w.core.Reached([]slot.Slot{s}, text(v)) {
				continue
			}
			if err := w.Shows(s, v, func(n int) (State, bool) { return w.server[n], w.wrong[n] }); err != nil {
				return fmt.Errorf("it has reached %w", err)
			}
			break // it has reached what is before, too
		}
	}
	return nil
}

// patience is how many rounds it may take to come to rest.
const patience = 60

// settle has everything come to rest, with labels that are right, and compares the store with the server.
func (w *world) settle() error {
	w.say("settling")
	if w.whole != nil {
		if err := w.commit(); err != nil {
			return err
		}
	}
	for _, is := range slices.Clone(w.server) {
		if is.Exists && is.Label != is.Slot {
			is.Label = is.Slot
			w.change(is)
		}
	}
	for range patience {
		if err := w.round(); err != nil {
			return err
		}
	}
	return w.rests()
}

// round has much happen, but no changes.
func (w *world) round() error {
	if rest := w.held.Minus(w.asked); !rest.Empty() {
		w.reopen()
	}
	for range 10 {
		if err := w.deliver(); err != nil {
			return err
		}
	}
	w.bookmark()
	for range 5 {
		if err := w.drive(); err != nil {
			return err
		}
	}
	w.now += time.Minute
	for range 4 {
		if err := w.lookUp(); err != nil {
			return err
		}
	}
	return w.check()
}

// rests says what is wrong about a world that has come to rest.
func (w *world) rests() error {
	if w.task != nil {
		return fmt.Errorf("it does not come to rest: task %v", w.task.Task)
	}
	if next := w.core.Next(w.held); next.Kind != stream.Nothing {
		return fmt.Errorf("it does not come to rest: task %v", next)
	}
	here := 0
	for n, is := range w.server {
		want := State{Name: n}
		if is.Exists && is.In && w.held.Has(is.Slot) {
			want = is
			here++
		}
		if w.Has[n] != want {
			return fmt.Errorf("at rest the store has %v, not %v", w.Has[n], want)
		}
	}
	size, ended, doubted := w.core.Size()
	if !w.cfg.Moves {
		here = 0
	}
	if size != here || ended != 0 || doubted != 0 {
		return fmt.Errorf("at rest the ledger has %d names, want %d; %d have ended, %d are in doubt",
			size, here, ended, doubted)
	}
	return nil
}
