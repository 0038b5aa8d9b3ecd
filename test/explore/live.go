package explore

import "fmt"

// Calm says how the states of a search continue without further faults.
type Calm struct {
	// Checked is how many states were continued. Ticks is the longest time until all was well.
	Checked, Ticks int
}

// String says what was checked.
func (c Calm) String() string {
	return fmt.Sprintf("%d states end well without further faults, within %d ticks", c.Checked, c.Ticks)
}

const (
	onWay   = -2
	unknown = -1
)

// Settle continues every nth known state without faults, in one fair order, until all is well: every slot is open in a
// live member, nothing moves, and nothing is left of dead members. If the search reached a fixpoint and nth is 1, this
// proves that no state is a dead end. A state that does not end well, or takes longer than the scope allows, is a
// finding.
func (s *Search) Settle(nth int) Calm {
	ticks := make([]int16, len(s.states))
	for i := range ticks {
		ticks[i] = unknown
	}
	beyond := map[state]int16{} // states that the search did not reach
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
	var passed []bool // whether the step was a tick
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
		calm.Ticks = max(calm.Ticks, int(t))
		if s.x.Within > 0 && int(t) > s.x.Within {
			s.Found = &Finding{Violation: Violation{"slow", fmt.Sprintf(
				"without further faults it takes %d ticks until all is well, instead of %d", t, s.x.Within,
			)}, from: uint32(i), fair: true}
		}
	}
	return calm
}
