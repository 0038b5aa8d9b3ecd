package explore

import (
	"fmt"
	"time"
)

// Search is a breadth-first search.
type Search struct {
	x       *space
	index   map[state]uint32
	states  []state
	parents []parent
	// Depth is that of the last state.
	Depth       int
	Transitions int
	Counts      [kinds]int
	Found       *Finding
	Fixpoint    bool
	Time        time.Duration
	next        uint32
}

type parent struct {
	from uint32
	by   act
}

// Finding is a violation, and how to get there.
type Finding struct {
	Violation Violation
	from      uint32
	by        act
}

// NewSearch begins a search.
func NewSearch(sc Scope) *Search {
	s := &Search{x: newSpace(sc), index: map[state]uint32{}}
	s.add(s.x.prepare(), parent{})
	return s
}

// prepare returns the state in which the scope's first pods run and have settled.
func (x *space) prepare() state {
	st := x.begin()
	for pod := range x.Running {
		w := x.look(st)
		w.start(pod, true)
		st = w.pack()
		var acts []act
		for steps := 0; ; steps++ {
			w := x.look(st)
			acts = w.enabled(acts)
			if quiet(acts) && w.unsettled() == "" {
				break
			}
			a, ok := w.fair(acts)
			if !ok || steps > 10_000 {
				panic("the scope does not settle: " + w.unsettled())
			}
			w.do(a)
			st = w.pack()
		}
	}
	return st
}

func (s *Search) add(st state, p parent) {
	if _, ok := s.index[st]; ok {
		return
	}
	s.index[st] = uint32(len(s.states))
	s.states = append(s.states, st)
	s.parents = append(s.parents, p)
}

// Run searches until everything is seen, something is found, or limit states are known.
func (s *Search) Run(limit int) {
	begun := time.Now()
	var acts []act
	for int(s.next) < len(s.states) && len(s.states) < limit && s.Found == nil {
		from := s.next
		s.next++
		w := s.x.look(s.states[from])
		acts = w.enabled(acts)
		for _, a := range acts {
			for {
				w := s.x.look(s.states[from])
				w.do(a)
				s.Transitions++
				s.Counts[a.kind]++
				if a.lose > 0 {
					s.Counts[lose]++
				}
				if len(w.violations) > 0 {
					s.Found = &Finding{w.violations[0], from, a}
					break
				}
				s.add(w.pack(), parent{from, a})
				before := s.x.look(s.states[from])
				if int(a.lose) >= w.sent || !before.may(lose) {
					break
				}
				a.lose++
			}
			if s.Found != nil {
				break
			}
		}
	}
	s.Fixpoint = int(s.next) == len(s.states) && s.Found == nil
	s.Time += time.Since(begun)
}

func (s *Search) path(to uint32) []act {
	var acts []act
	for ; to != 0; to = s.parents[to].from {
		acts = append([]act{s.parents[to].by}, acts...)
	}
	return acts
}

// Trace prints how to get to the finding.
func (s *Search) Trace(print func(string)) {
	acts := append(s.path(s.Found.from), s.Found.by)
	st := s.states[0]
	for _, a := range acts {
		w := s.x.look(st)
		print("── " + s.x.describe(a))
		w.explain = func(format string, args ...any) { print("     " + fmt.Sprintf(format, args...)) }
		w.do(a)
		for _, v := range w.violations {
			print("VIOLATION " + v.Rule + ": " + v.Message)
		}
		if len(w.violations) > 0 {
			return
		}
		st = w.pack()
	}
}
