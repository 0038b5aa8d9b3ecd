package streamtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Search is a breadth-first search of a scope.
//
// It keeps the way to each state instead of the state, and takes it again. So nothing has to be copied.
type Search struct {
	Scope       Scope
	Transitions int
	// Counts says how often each kind of act was taken.
	Counts   [kinds]int
	Fixpoint bool
	// Settled is how many states came to rest.
	Settled int
	// Found is what went wrong, and By the acts that lead there.
	Found error
	By    []act
	Time  time.Duration

	begin   []act
	known   map[digest]struct{}
	ways    []way
	next    int
	encoder encoder
	acts    []act
}

// way is the last act on the way to a state.
type way struct {
	from uint32
	by   act
}

// NewSearch begins a search.
func NewSearch(sc Scope) *Search {
	s := &Search{Scope: sc, known: map[digest]struct{}{}}
	if s.begin, s.Found = parse(sc.Begin); s.Found == nil {
		s.add(s.at(nil), way{})
	}
	return s
}

func (s *Search) add(n *node, w way) {
	f := s.encoder.digest(n.world, n.used[:])
	if _, known := s.known[f]; known {
		return
	}
	s.known[f] = struct{}{}
	s.ways = append(s.ways, w)
}

// path returns the acts that lead to a state.
func (s *Search) path(i uint32) []act {
	s.acts = s.acts[:0]
	for ; i > 0; i = s.ways[i].from {
		s.acts = append(s.acts, s.ways[i].by)
	}
	slices.Reverse(s.acts)
	return s.acts
}

// at returns the world at the end of a path.
func (s *Search) at(path []act) *node {
	n := &node{world: newWorld(s.Scope.Config, s.Scope.Names)}
	for _, a := range s.begin {
		_ = n.do(a) // it does not count
	}
	for _, a := range path {
		_ = n.take(a) // known to be right
	}
	return n
}

// Run searches until everything is seen, something is found, or limit states are known. It lets one in nth of the
// states come to rest.
func (s *Search) Run(limit, nth int) {
	begun := time.Now()
	defer func() { s.Time += time.Since(begun) }()
	var acts []act
	for s.next < len(s.ways) && len(s.ways) < limit && s.Found == nil {
		from := uint32(s.next) // it takes weeks
		s.next++
		path := s.path(from)
		n := s.at(path)
		acts = s.Scope.acts(n, acts)
		if int(from)%nth == 0 {
			s.Settled++
			if err := n.settle(pickFirst, 0); err != nil {
				s.found(path, err)
				return
			}
		}
		for _, a := range acts {
			n := s.at(path)
			s.Transitions++
			s.Counts[a.kind]++
			if err := errors.Join(n.take(a), n.check()); err != nil {
				s.found(append(path, a), err)
				return
			}
			s.add(n, way{from, a})
		}
	}
	s.Fixpoint = s.next == len(s.ways)
}

// pickFirst picks the first of so many.
func pickFirst(int) int { return 0 }

func (s *Search) found(path []act, err error) {
	s.Found, s.By = err, slices.Clone(path)
}

// States is the number of states known.
func (s *Search) States() int { return len(s.ways) }

// Depth is how many acts it takes to come to the last state.
func (s *Search) Depth() int { return len(s.path(uint32(len(s.ways) - 1))) } // it takes weeks

// String says how far the search came.
func (s *Search) String() string {
	end := "fixpoint"
	switch {
	case s.Found != nil:
		end = "stopped by what was found"
	case !s.Fixpoint:
		end = fmt.Sprintf("stopped, %d states not continued", len(s.ways)-s.next)
	}
	return fmt.Sprintf("%d states, %d transitions, depth %d, %d settled, %.1f s: %s",
		s.States(), s.Transitions, s.Depth(), s.Settled, s.Time.Seconds(), end)
}

// Script returns the way to what was found, as a text for Replay.
func (s *Search) Script() string {
	var b strings.Builder
	b.WriteString("scope " + s.Scope.Name + "\n")
	for _, a := range s.By {
		b.WriteString(a.String() + "\n")
	}
	return b.String()
}

// Replay takes the acts of a script, tells what happens, and returns what went wrong. In the end all comes to rest.
func Replay(script string, tell func(line string)) error {
	first, acts, _ := strings.Cut(script, "\n")
	sc, ok := ScopeOf(strings.TrimPrefix(first, "scope "))
	if !ok {
		return fmt.Errorf("there is no scope of %q", first)
	}
	parsed, err := parse(acts)
	if err != nil {
		return err
	}
	n := NewSearch(sc).at(nil)
	n.tell = func(format string, args ...any) { tell(fmt.Sprintf(format, args...)) }
	for _, a := range parsed {
		if err := errors.Join(n.do(a), n.check()); err != nil {
			return err
		}
	}
	return n.settle(pickFirst, 0)
}
