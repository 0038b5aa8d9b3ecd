package streamtest

import (
	"fmt"
	"slices"
	"strconv"
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
		for v := w.server.version; v > 0 && v > w.server.version-40; v-- {
			if !w.core.Reached([]slot.Slot{s}, strconv.Itoa(v)) {
				continue
			}
			if err := w.shows(s, v); err != nil {
				return err
			}
			break // it has reached what is before, too
		}
	}
	return nil
}

// shows says what the store does not show of a slot up to a version, of names that have not changed since.
func (w *world) shows(s slot.Slot, v int) error {
	for n, is := range w.server.has {
		has := w.store[n]
		switch {
		case is.version > v: // it may show that, or what was before
		case w.wrong[n], w.cfg.Selects && has.exists && has.label != has.slot: // the watch does not tell
		case is.exists && is.in && is.slot == s && has != is:
			return fmt.Errorf("slot %v has reached %d: the store has %v, not %v", s, v, has, is)
		case has.exists && has.slot == s && has != is && !(w.cfg.Selects && is.exists && is.uid == has.uid && is.slot == s):
			return fmt.Errorf("slot %v has reached %d: the store still has %v, but %v", s, v, has, is)
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
	for _, is := range slices.Clone(w.server.has) {
		if is.exists && is.label != is.slot {
			is.label = is.slot
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
	for n, is := range w.server.has {
		want := state{name: n}
		if is.exists && is.in && w.held.Has(is.slot) {
			want = is
			here++
		}
		if w.store[n] != want {
			return fmt.Errorf("at rest the store has %v, not %v", w.store[n], want)
		}
	}
	known, ended, doubted := w.core.Size()
	if !w.cfg.Moves {
		here = 0
	}
	if known != here || ended != 0 || doubted != 0 {
		return fmt.Errorf("at rest the ledger has %d names, want %d; %d have ended, %d are in doubt",
			known, here, ended, doubted)
	}
	return nil
}
