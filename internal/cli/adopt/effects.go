package adopt

import (
	"go/token"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// findEffects finds local effects of controllers' functions that other replicas do not share: goroutines, files and
// rate limiters.
func (s *scan) findEffects() {
	left, files, limits := reasons{}, reasons{}, reasons{}
	for _, f := range s.functions {
		runs := s.runs(f)
		if len(runs) == 0 {
			continue
		}
		for i := range instructions(f) {
			call, ok := i.(ssa.CallInstruction)
			if !ok {
				continue
			}
			name, pos := calleeOf(call.Common()), i.Pos()
			if syntax := s.calls[pos]; syntax != nil {
				pos = syntax.Pos()
			}
			at := s.where(pos)
			if has, starts := s.starts(i); starts && !s.waits(f, has) {
				s.find(Look, "Goroutine", pos, "%s: it starts a goroutine", titles(runs))
				left.add(runs, at)
			}
			if by := slices.DeleteFunc(slices.Clone(runs), func(c *controller) bool {
				return (name.pkg == "os" || name.name == "WriteFile") && s.makesTemp(c)
			}); len(by) > 0 && len(s.callees[call]) == 0 && name.writesFile() {
				s.find(Look, "Files", pos, "%s: it writes files, by %s", titles(by), name.short())
				files.add(by, at)
			}
			if name.takesTurns() {
				s.find(Look, "Workers", pos, "%s: it asks a rate limiter, %s", titles(runs), name.short())
				limits.add(runs, at)
			}
		}
	}
	s.keepsFiles = len(files) > 0
	left.doubt("it leaves a goroutine running: ")
	files.doubt("it writes files, which other replicas do not have: ")
	limits.doubt("it has a rate limiter, of which each replica would have one: ")
}

// makesTemp reports whether a controller makes temporary files. Then its writes by WriteFile or package os are assumed
// to go there.
func (s *scan) makesTemp(c *controller) bool {
	for f := range c.reached {
		for i := range instructions(f) {
			if call, ok := i.(ssa.CallInstruction); ok && calleeOf(call.Common()).is("os", "MkdirTemp", "CreateTemp") {
				return true
			}
		}
	}
	return false
}

// starts reports whether an instruction starts a goroutine: a go statement, time.AfterFunc, or a group's Go. has are
// variables through which the goroutine can signal its end.
func (s *scan) starts(i ssa.Instruction) (has []ssa.Value, starts bool) {
	call, ok := i.(ssa.CallInstruction)
	if !ok {
		return nil, false
	}
	c := call.Common()
	if _, ok := i.(*ssa.Go); ok {
		has = append(has, c.Args...)
		if closure, ok := c.Value.(*ssa.MakeClosure); ok {
			has = append(has, closure.Bindings...)
		}
		return has, true
	}
	name := calleeOf(c)
	if isGroup(name) && name.name == "Go" {
		return []ssa.Value{receiver(c)}, true
	}
	return nil, name.is("time", "AfterFunc")
}

func isGroup(c callee) bool {
	return c.recv == "WaitGroup" && c.pkg == "sync" || c.recv == "Group" && c.pkg == "golang.org/x/sync/errgroup"
}

// waits reports whether a function waits for one of these: by a group's Wait, or by a receive from a channel. A receive
// in a select with other cases may continue without it.
func (s *scan) waits(f *ssa.Function, has []ssa.Value) bool {
	for i := range instructions(f) {
		var on ssa.Value
		switch i := i.(type) {
		case *ssa.UnOp:
			if i.Op == token.ARROW {
				on = i.X
			}
		case ssa.CallInstruction:
			if name := calleeOf(i.Common()); isGroup(name) && name.name == "Wait" {
				on = receiver(i.Common())
			}
		}
		if on != nil && slices.ContainsFunc(has, func(v ssa.Value) bool { return variable(v) == variable(on) }) {
			return true
		}
	}
	return false
}

// variable returns the variable that a value is read from, or the value.
func variable(v ssa.Value) ssa.Value {
	for {
		switch x := v.(type) {
		case *ssa.UnOp:
			if x.Op != token.MUL {
				return v
			}
			v = x.X
		case *ssa.ChangeType:
			v = x.X
		default:
			return v
		}
	}
}

// findLate finds goroutines and runnables that build controllers, for example once there are certificates. One that
// also makes the manager builds them before the manager starts.
func (s *scan) findLate() {
	late := func(roots []*ssa.Function) bool {
		reached := s.reach(roots)
		return slices.ContainsFunc(s.controllers, func(c *controller) bool { return reached[c.call.Parent()] }) &&
			!slices.ContainsFunc(s.managers, func(m *manager) bool { return reached[m.call.Parent()] })
	}
	for i := range s.each() {
		switch i := i.(type) {
		case *ssa.Go:
			if late(append(s.functionsIn(i.Call.Value), s.callees[i]...)) {
				s.find(Must, "LateControllers", i.Pos(), "a goroutine builds controllers")
			}
		case *ssa.Call:
			name := calleeOf(&i.Call)
			if !isManager(name) || name.name != "Add" && name.name != "AddDuty" {
				continue
			}
			args := argumentsOf(&i.Call)
			if late(s.functionsIn(args[len(args)-1])) {
				s.find(Must, "LateControllers", s.position(i), "a runnable builds controllers")
			}
		}
	}
}
