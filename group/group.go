package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/nearest"
)

// Everything is the pattern for all controllers that are on by default.
const Everything = "*"

// Group determines which of a program's controllers a process runs. It is immutable and safe for concurrent use.
type Group struct {
	program string
	known   []string
	runs    map[string]bool
	off     map[string]bool // by default
}

// Parse returns the group for the patterns. known lists the names of all controllers of the program; those that begin
// with "-" are off by default. A pattern is
//
//   - "*": every controller that is on by default;
//   - "name": this controller;
//   - "-name": not this controller, even if "*" matches.
//
// As in the kube-controller-manager, the first pattern with a controller's name decides, and names take precedence over
// "*". No patterns mean "*". The program's name separates its groups from other rotas in the namespace.
//
// The error lists each pattern that matches no controller, with the most similar name.
func Parse(program string, known []string, patterns ...string) (*Group, error) {
	if !word(program) {
		return nil, fmt.Errorf("group of program %q: the name must be one word without commas", program)
	}
	g := &Group{program: program, runs: map[string]bool{}, off: map[string]bool{}}
	for _, name := range known {
		plain, isOff := strings.CutPrefix(name, "-")
		switch {
		case !word(plain) || plain == Everything:
			return nil, fmt.Errorf("controller %q of %s: the name must be one word without commas", name, program)
		case slices.Contains(g.known, plain):
			return nil, fmt.Errorf("controller %s of %s: it is there twice", plain, program)
		}
		g.known = append(g.known, plain)
		g.off[plain] = isOff
	}
	if len(g.known) == 0 {
		return nil, fmt.Errorf("group of program %s: it has no controllers", program)
	}
	slices.Sort(g.known)
	if len(patterns) == 0 {
		patterns = []string{Everything}
	}
	var errs []error
	for _, p := range patterns {
		name := strings.TrimPrefix(p, "-")
		switch {
		case p == Everything:
		case name == Everything:
			errs = append(errs, errors.New(`pattern "-*": leave "*" out instead`))
		case !slices.Contains(g.known, name):
			errs = append(errs, fmt.Errorf("pattern %q: %s has no controller of that name%s", p, program,
				nearest.Hint(name, g.known)))
		case slices.Contains(patterns, name) && slices.Contains(patterns, "-"+name) && p != name:
			errs = append(errs, fmt.Errorf("patterns %q and %q: drop one of them", name, p))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, name := range g.known {
		switch {
		case slices.Contains(patterns, "-"+name):
		case slices.Contains(patterns, name):
			g.runs[name] = true
		default:
			g.runs[name] = slices.Contains(patterns, Everything) && !g.off[name]
		}
	}
	return g, nil
}

func word(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' })
}

// Program returns the program's name.
func (g *Group) Program() string { return g.program }

// Runs reports whether this process runs the controller. It panics if the name was not passed to Parse, because then no
// group would run the controller.
func (g *Group) Runs(controller string) bool {
	if !slices.Contains(g.known, controller) {
		panic(fmt.Sprintf("group of %s: controller %q is not among the names given to group.Parse", g.program, controller))
	}
	return g.runs[controller]
}

// Controllers returns the names of the controllers that this process runs, sorted.
func (g *Group) Controllers() []string {
	return slices.DeleteFunc(slices.Clone(g.known), func(name string) bool { return !g.runs[name] })
}

// Expected returns the sorted names of the controllers that some group has to run: the controllers that are on by
// default and those that this process runs.
func (g *Group) Expected() []string {
	return slices.DeleteFunc(slices.Clone(g.known), func(name string) bool { return g.off[name] && !g.runs[name] })
}

// Running is the set of controllers that a rota runs, as announced by its members.
type Running struct {
	// Rota is the rota's name.
	Rota string
	// Expected and Controllers are as in Group.
	Expected, Controllers []string
}

// Gap is a controller that no group runs, or more than one.
type Gap struct {
	Controller string
	// Rotas are the rotas that run it, in order.
	Rotas string
}

// String describes the problem and how to fix it.
func (g Gap) String() string {
	if g.Rotas == "" {
		return fmt.Sprintf("controller %s is in no group that runs: add it to the patterns of one, or start its group",
			g.Controller)
	}
	return fmt.Sprintf("controller %s is in more than one group: rotas %s: take it out of the patterns of all but one",
		g.Controller, g.Rotas)
}

// Gaps returns the controllers that are in no group or in several, by name. If members of a rota announce different
// controllers, as in a rollout, the rota counts as running all of them.
func Gaps(running []Running) []Gap {
	by := map[string][]string{}
	for _, r := range running {
		for _, name := range r.Expected {
			if _, known := by[name]; !known {
				by[name] = nil
			}
		}
		for _, name := range r.Controllers {
			if !slices.Contains(by[name], r.Rota) {
				by[name] = append(by[name], r.Rota)
			}
		}
	}
	var out []Gap
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if rotas := by[name]; len(rotas) != 1 {
			slices.Sort(rotas)
			out = append(out, Gap{name, strings.Join(rotas, ", ")})
		}
	}
	return out
}
