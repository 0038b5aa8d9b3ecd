package explore

import "fmt"

// Calm says how the states of a search go on when nothing goes wrong any more.
type Calm struct {
	// Checked is how many states were continued, Ticks the longest time until all was well, and Slowest the state of which
	// that is so.
	Checked, Ticks int
	Slowest        uint32
}

// String says what was checked.
func (c Calm) String() string {
	return fmt.Sprintf("%d states end well without further faults, within %d ticks", c.Checked, c.Ticks)
}

const (
	onWay   = -2
	unknown = -1
)

// Settle continues every state known, or every n-th, without faults, in one fair order, until all is well: every slot
// open in a live member, nothing moving, nothing left of the dead. Where the search came to a fixpoint that proves that
// no state is a dead end. What does not end well, or takes longer than the scope says, is found.
func (s *Search) Settle(nth int) Calm {
	ticks := make([]int16, len(s.states))
	for i := range ticks {
		ticks[i] = unknown
	}
	beyond := map[state]int16{} // of states that the search did not come to
	mark := func(st state) *int16 {
		if n, _, ok := s.index.find(s.states, &st); ok {
			return &ticks[n]
		}
		return nil
	}
	get := func(st state) int16 {
		if p := mark(st); p != nil {
			return *p
		}
		if t, ok := beyond[st]; ok {
			return t
		}
		return unknown
	}
	set := func(st state, t int16) {
		if p := mark(st); p != nil {
			*p = t
		} else {
			beyond[st] = t
		}
	}
	var calm Calm
	var acts []act
	var way []state
	var passed []bool // by a tick
	for i := 0; i < len(s.states) && s.Found == nil; i += nth {
		calm.Checked++
		way, passed = way[:0], passed[:0]
		st := s.states[i]
		for get(st) == unknown {
			w := s.x.look(st)
			acts = w.enabled(acts)
			if quiet(acts) && w.unsettled() == "" {
				set(st, 0)
				break
			}
			set(st, onWay)
			way = append(way, st)
			a, ok := w.fair(acts)
			if !ok {
				break
			}
			passed = append(passed, a.kind == advance)
			w.do(a)
			if len(w.violations) > 0 {
				s.Found = &Finding{Violation: w.violations[0], from: uint32(i), fair: true}
				return calm
			}
			st = w.pack()
		}
		t := get(st)
		if t == onWay {
			w := s.x.look(st)
			why := w.unsettled()
			if why == "" {
				why = "it does not come to rest"
			}
			s.Found = &Finding{Violation: Violation{"settle", "without further faults: " + why}, from: uint32(i), fair: true}
			return calm
		}
		for j := len(way) - 1; j >= 0; j-- {
			if passed[j] {
				t++
			}
			set(way[j], t)
		}
		if int(t) > calm.Ticks {
			calm.Ticks, calm.Slowest = int(t), uint32(i)
		}
		if s.x.Within > 0 && int(t) > s.x.Within {
			s.Found = &Finding{Violation: Violation{"slow", fmt.Sprintf(
				"without further faults it takes %d ticks until all is well, instead of %d", t, s.x.Within,
			)}, from: uint32(i), fair: true}
		}
	}
	return calm
}
