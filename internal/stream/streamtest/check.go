package streamtest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/stream"
	"github.com/rota-dev/rota/slot"
)

// check says what is wrong about what the stream says that it has reached.
func (l *Life) check() error {
	if l.whole != nil {
		return nil
	}
	for s := range slot.Slot(slots) {
		if !l.held.Has(s) || !l.core.Carries(s) || !l.core.Ready(s) {
			continue
		}
		for v := l.server.version; v > 0 && v > l.server.version-40; v-- {
			if !l.core.Reached([]slot.Slot{s}, strconv.Itoa(v)) {
				continue
			}
			if err := l.shows(s, v); err != nil {
				return err
			}
			break // it has reached what is before, too
		}
	}
	return nil
}

// shows says what the store does not show of a slot up to a version, of names that have not changed since.
func (l *Life) shows(s slot.Slot, v int) error {
	for n, is := range l.server.has {
		has := l.store[n]
		switch {
		case is.version > v: // it may show that, or what was before
		case l.wrong[n] > 0, l.cfg.Selects && has.exists && has.label != has.slot: // the watch does not tell
		case is.exists && is.in && is.slot == s && has != is:
			return fmt.Errorf("slot %v has reached %d: the store has %v, not %v", s, v, has, is)
		case has.exists && has.slot == s && has != is && !(l.cfg.Selects && is.exists && has.uid == is.uid && has.slot == is.slot):
			return fmt.Errorf("slot %v has reached %d: the store still has %v, but %v", s, v, has, is)
		}
	}
	return nil
}

// settle has everything come to rest, with labels that are right, and compares the store with the server.
func (l *Life) settle() error {
	l.say("settling")
	if l.whole != nil {
		if err := l.commit(); err != nil {
			return err
		}
	}
	for n := range names {
		if is := l.server.has[n]; is.exists && is.label != is.slot {
			is.label = is.slot
			l.server.set(is)
			l.wrong[n] = 0
			if !is.in {
				l.wrong[n] = is.version
			}
		}
	}
	for range 60 {
		if rest := l.held.Minus(l.asked); !rest.Empty() {
			l.reopen()
		}
		for range 10 {
			if err := l.deliver(); err != nil {
				return err
			}
		}
		l.bookmark()
		for range 4 {
			if err := l.drive(); err != nil {
				return err
			}
		}
		l.now += time.Minute
		for range 4 {
			if err := l.lookUp(); err != nil {
				return err
			}
		}
		if err := l.check(); err != nil {
			return err
		}
	}
	if next := l.core.Next(l.held); next.Kind != stream.Nothing || l.task != nil {
		return fmt.Errorf("it does not come to rest: task %v", next)
	}
	here := 0
	for n, is := range l.server.has {
		want := state{name: n}
		if is.exists && is.in && l.held.Has(is.slot) {
			want = is
			here++
		}
		if l.store[n] != want {
			return fmt.Errorf("at rest the store has %v, not %v", l.store[n], want)
		}
	}
	known, ended, doubted := l.core.Size()
	if !l.cfg.Moves {
		here = 0
	}
	if known != here || ended != 0 || doubted != 0 {
		return fmt.Errorf("at rest the ledger has %d names, want %d; %d have ended, %d are in doubt", known, here, ended, doubted)
	}
	return nil
}
