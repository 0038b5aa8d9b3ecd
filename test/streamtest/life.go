package streamtest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/slot"
)

const (
	names = 3
	slots = 4
)

// life is a world whose acts are drawn.
type life struct {
	*world
	rng *rand.Rand
}

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

func live(seed uint64, cfg stream.Config, steps int, tell func(string, ...any)) error {
	cfg.Slots = slots
	l := &life{world: newWorld(cfg, names), rng: rand.New(rand.NewPCG(seed, 0))}
	l.tell = tell
	first := []func() act{l.change, l.change, l.change, l.hold, func() act { return act{kind: begin} }, l.commit}
	for _, draw := range first {
		if err := l.do(draw()); err != nil {
			return err
		}
	}
	for range steps {
		if err := l.do(act{kind: wait, n: uint16(l.rng.IntN(300))}); err != nil {
			return err
		}
		if err := l.do(l.step()); err != nil {
			return err
		}
		if err := l.check(); err != nil {
			return err
		}
	}
	return l.settle(l.rng.IntN, patience)
}

// step draws what happens next.
func (l *life) step() act {
	switch n := l.rng.IntN(100); {
	case n < 22:
		return l.change()
	case n < 26:
		return l.hold()
	case n < 28 && l.whole == nil:
		return act{kind: renew, set: l.some()}
	case n < 30 && l.whole == nil:
		return act{kind: begin}
	case n < 36 && l.whole != nil:
		return l.commit()
	case l.whole != nil:
		return act{}
	case n < 60:
		return act{kind: deliver}
	case n < 63:
		return act{kind: bookmark}
	case n < 85:
		return act{kind: drive}
	default:
		return l.lookUp(l.rng.IntN)
	}
}

func (l *life) some() set {
	var out set
	for n := range slots {
		if l.rng.IntN(2) == 0 {
			out |= 1 << n
		}
	}
	return out
}

func (l *life) hold() act { return act{kind: hold, set: l.some()} }

func (l *life) commit() act { return l.drawCommit(l.rng.IntN) }

// change draws what happens to a name.
func (l *life) change() act {
	is := l.server.has[l.rng.IntN(names)]
	if !is.exists {
		is.slot, is.in = slot.Slot(is.name%slots), true
		if l.cfg.Moves || l.cfg.Namesakes {
			is.slot = l.slot(slots)
		}
		is.label = is.slot
		if l.cfg.Selects && l.rng.IntN(6) == 0 {
			is.label = l.slot(slots + 1)
		}
		return is.by(create)
	}
	switch n := l.rng.IntN(10); {
	case n < 3:
		return is.by(remove)
	case n < 6 && l.cfg.Moves:
		is.slot, is.in = l.slot(slots), l.rng.IntN(6) > 0
		if l.rng.IntN(3) > 0 {
			is.label = is.slot
		}
	case n < 7 && l.cfg.Selects:
		is.label = l.slot(slots + 1)
	case n < 9:
		is.label = is.slot
	}
	return is.by(update)
}

func (l *life) slot(below int) slot.Slot { return slot.Slot(l.rng.IntN(below)) }

// by returns the act that brings about this state.
func (o state) by(k kind) act {
	if k == remove {
		return act{kind: k, name: uint8(o.name)}
	}
	return act{kind: k, name: uint8(o.name), slot: uint8(o.slot), label: uint8(o.label), in: o.in}
}

// drawCommit draws how many changes come before the end of a list of the whole.
func (w *world) drawCommit(pick func(int) int) act {
	a := act{kind: commit}
	if pick(2) == 0 {
		more := min(pick(4), len(w.server.log)-w.indexOf(w.whole.version))
		a.n = uint16(more)
	}
	return a
}

// lookUp draws whether something is asked for, or which answer comes.
func (w *world) lookUp(pick func(int) int) act {
	if len(w.looks) > 0 && pick(2) == 0 {
		return act{kind: answer, n: uint16(pick(len(w.looks)))}
	}
	return act{kind: ask}
}
