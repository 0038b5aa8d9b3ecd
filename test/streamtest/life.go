package streamtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

const (
	names = 3
	slots = 4
)

// Run lives through a seed, and returns what went wrong.
func Run(seed uint64, cfg stream.Config, steps int) error {
	if err := live(seed, cfg, steps, nil); err == nil {
		return nil
	}
	var trail []string
	err := live(seed, cfg, steps, func(format string, args ...any) { trail = append(trail, fmt.Sprintf(format, args...)) })
	tail := trail[max(0, len(trail)-80):]
	return fmt.Errorf("seed %d, %+v: %w\n  %s", seed, cfg, err, strings.Join(tail, "\n  "))
}

func live(seed uint64, cfg stream.Config, steps int, logf func(string, ...any)) error {
	cfg.Slots = slots
	w := newWorld(cfg, rand.New(rand.NewPCG(seed, 0)))
	w.logf = logf
	for range 3 {
		w.change(w.draw())
	}
	w.hold(w.some())
	w.begin()
	if err := w.commit(); err != nil {
		return err
	}
	for range steps {
		w.now += time.Duration(w.rng.IntN(300)) * time.Millisecond
		if err := w.step(); err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return err
		}
	}
	return w.settle()
}

// step draws what happens next. While the whole is listed, nothing is sent.
func (w *world) step() error {
	switch n := w.rng.IntN(100); {
	case n < 22:
		w.change(w.draw())
	case n < 26:
		w.hold(w.some())
	case n < 28 && w.whole == nil:
		w.renew(w.some())
	case n < 30 && w.whole == nil:
		w.begin()
	case n < 36 && w.whole != nil:
		return w.commit()
	case w.whole != nil:
	case n < 60:
		return w.deliver()
	case n < 63:
		w.bookmark()
	case n < 85:
		return w.drive()
	default:
		return w.lookUp()
	}
	return nil
}

// some draws some slots.
func (w *world) some() slot.Set {
	var out slot.Set
	for n := range slot.Slot(slots) {
		if w.rng.IntN(2) == 0 {
			out.Add(n)
		}
	}
	return out
}

// draw draws the next state of a name.
func (w *world) draw() State {
	is := w.server[w.rng.IntN(names)]
	if !is.Exists {
		is.Slot, is.Exists = slot.Slot(is.Name%slots), true
		if w.cfg.Moves || w.cfg.Namesakes {
			is.Slot = w.slot(slots)
		}
		is.Label = is.Slot
		if w.cfg.Selects && w.rng.IntN(6) == 0 {
			is.Label = w.slot(slots + 1)
		}
		return is
	}
	switch n := w.rng.IntN(10); {
	case n < 3:
		is.Exists = false
	case n < 6 && w.cfg.Moves:
		is.Slot, is.In = w.slot(slots), w.rng.IntN(6) > 0
		if w.rng.IntN(3) > 0 {
			is.Label = is.Slot
		}
	case n < 7 && w.cfg.Selects:
		is.Label = w.slot(slots + 1)
	case n < 9:
		is.Label = is.Slot
	}
	return is
}

func (w *world) slot(below int) slot.Slot { return slot.Slot(w.rng.IntN(below)) }
