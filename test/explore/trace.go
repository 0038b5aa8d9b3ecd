package explore

import (
	"errors"
	"fmt"
	"strings"
)

// Finding is a violation, and the way to it.
type Finding struct {
	Violation Violation
	from      uint32
	by        act
	// fair: it comes to light when nothing goes wrong any more.
	fair bool
}

func (s *Search) path(to uint32) []act {
	var back []act
	for ; to != 0; to = s.parents[to].from {
		back = append(back, s.parents[to].by)
	}
	acts := make([]act, 0, len(back)+1)
	for i := len(back) - 1; i >= 0; i-- {
		acts = append(acts, back[i])
	}
	return acts
}

// Script returns what Replay repeats: the shortest way to what was found.
func (s *Search) Script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\nscope %s\n", s.Found.Violation.Rule, s.Found.Violation.Message, s.x.Name)
	way := s.path(s.Found.from)
	if !s.Found.fair {
		way = append(way, s.Found.by)
	}
	for _, a := range way {
		b.WriteString(s.x.describe(a) + "\n")
	}
	if s.Found.fair {
		b.WriteString("calm\n")
	}
	return b.String()
}

// Replay repeats a script: lines with what happens, as Search.Script writes them. "calm" continues without faults for
// as long as it takes. It returns the first violation, and tells what the members hear and do.
func Replay(script string, tell func(string)) (*Violation, error) {
	var x *space
	var sc Scope
	var st state
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		name, of, _ := strings.Cut(line, " ")
		switch {
		case line == "":
			continue
		case name == "scope":
			var ok bool
			if sc, ok = ScopeOf(of); !ok {
				return nil, fmt.Errorf("no scope %s", of)
			}
			continue
		case sc.Name == "":
			return nil, errors.New("a script begins with a scope")
		}
		if x == nil {
			x = newSpace(sc)
			var v *Violation
			if st, v = x.prepare(); v != nil {
				return v, nil
			}
		}
		tell("── " + line)
		if line == "calm" {
			return x.calm(st, tell), nil
		}
		w := x.look(st)
		a, ok := w.find(line)
		if !ok {
			return nil, fmt.Errorf("%s: this cannot happen now", line)
		}
		v := w.tell(a, tell)
		if v != nil {
			return v, nil
		}
		st = w.pack()
	}
	return nil, nil // nothing was violated
}

// find finds what a line means.
func (w *world) find(line string) (act, bool) {
	base, n, lost := strings.Cut(line, " lose=")
	for _, a := range w.enabled(nil) {
		if w.x.describe(a) == base {
			if lost {
				a.lose = uint8(number(n))
			}
			return a, true
		}
	}
	return act{}, false
}

// tell makes an action happen and prints what comes of it.
func (w *world) tell(a act, tell func(string)) *Violation {
	w.explain = func(format string, args ...any) { tell("     " + fmt.Sprintf(format, args...)) }
	w.do(a)
	if len(w.violations) == 0 {
		return nil
	}
	v := w.violations[0]
	tell("VIOLATION " + v.Rule + ": " + v.Message)
	return &v
}

// calm continues without faults.
func (x *space) calm(st state, tell func(string)) *Violation {
	seen := map[state]bool{}
	for ticks := 0; ; {
		w := x.look(st)
		acts := w.enabled(nil)
		if quiet(acts) && w.unsettled() == "" {
			if x.Within > 0 && ticks > x.Within {
				return &Violation{"slow", fmt.Sprintf("it takes %d ticks until all is well, instead of %d", ticks, x.Within)}
			}
			return nil
		}
		a, ok := w.fair(acts)
		if !ok || seen[st] {
			return &Violation{"settle", "without further faults: " + w.unsettled()}
		}
		seen[st] = true
		if a.kind == advance {
			ticks++
		}
		tell("── " + x.describe(a))
		if v := w.tell(a, tell); v != nil {
			return v
		}
		st = w.pack()
	}
}
