package explore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/protocol/inspect"
)

// Search is a breadth-first search.
type Search struct {
	x           *space
	index       index
	states      []state
	parents     []parent
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

// NewSearch begins a search. If the way to the first state already breaks the protocol, that is the finding.
func NewSearch(sc Scope) *Search {
	s := &Search{x: newSpace(sc)}
	st, v := s.x.prepare()
	s.add(st, parent{})
	if v != nil {
		s.Found = &Finding{Violation: *v}
	}
	return s
}

// prepare returns the state in which a search begins, or the violation on the way there.
func (x *space) prepare() (state, *Violation) {
	st := x.begin()
	settled := func(w *world, acts []act) bool { return quiet(acts) && w.unsettled() == "" }
	for pod := range x.Running {
		w := x.look(st)
		w.start(pod, true)
		var v *Violation
		if st, v = x.until(w.pack(), settled); v != nil {
			return st, v
		}
	}
	w := x.look(st)
	last := x.Pods - 1
	switch {
	case x.From == "":
		return st, nil
	case x.From == "recovery":
		w.do(act{kind: lag, pod: uint8(last), arg: lagTable})
		w.putTable(0, nil)
	case x.From == "fence":
		w.do(act{kind: crash, pod: uint8(last)})
	case x.Running < x.Pods:
		w.start(x.Running, true)
	default:
		w.do(act{kind: leave, pod: uint8(last)})
	}
	w.changeServer().used = Limits{} // the preparation does not count
	return x.until(w.pack(), func(w *world, _ []act) bool {
		if x.From == "recovery" && inspect.Look(w.member(0)).Alone {
			return true
		}
		for i := range x.Pods {
			for _, o := range w.box(i).ops {
				if x.From == "drain" && o.kind == opDrain {
					return true
				}
			}
			if m := w.member(i); x.From == "fence" && m != nil && inspect.Look(m).Fenced {
				return true
			}
		}
		return false
	})
}

// until continues in the fair order until so returns true.
func (x *space) until(st state, so func(w *world, acts []act) bool) (state, *Violation) {
	for range 10_000 {
		w := x.look(st)
		acts := w.enabled(nil)
		if so(&w, acts) {
			return st, nil
		}
		acts = slices.DeleteFunc(acts, func(a act) bool {
			return a.kind == unlag || a.kind == seeTable && w.box(int(a.pod)).lag&lagTable != 0
		})
		a, ok := w.fair(acts)
		if !ok {
			break
		}
		w.do(a)
		if len(w.violations) > 0 {
			return st, &w.violations[0]
		}
		st = w.pack()
	}
	return st, &Violation{"begin", "the scope does not come to its beginning, in which all is well"}
}

func (s *Search) add(st state, p parent) {
	_, place, ok := s.index.find(s.states, &st)
	if ok {
		return
	}
	s.index.put(place, uint32(len(s.states)))
	s.states = append(s.states, st)
	s.parents = append(s.parents, p)
}

// Run searches until all states are seen, a violation is found, or limit states are known.
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
					s.Found = &Finding{Violation: w.violations[0], from: from, by: a}
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

// String says how far the search got.
func (s *Search) String() string {
	end := "fixpoint"
	switch {
	case s.Found != nil:
		end = "stopped by what was found"
	case !s.Fixpoint:
		end = fmt.Sprintf("stopped, %d states not continued", len(s.states)-int(s.next))
	}
	return fmt.Sprintf("%d states, %d transitions, depth %d, %.1f s: %s",
		len(s.states), s.Transitions, s.Depth(), s.Time.Seconds(), end)
}

// Depth is how many actions lead to the last state.
func (s *Search) Depth() int { return len(s.path(uint32(len(s.states) - 1))) }

// Kinds says how often each kind of action was taken.
func (s *Search) Kinds() string {
	var parts []string
	for k, n := range s.Counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%v %d", kind(k), n))
		}
	}
	return strings.Join(parts, ", ")
}
