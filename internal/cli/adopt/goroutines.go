package adopt

import (
	"go/token"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// findGoroutines looks for goroutines that functions which run for controllers leave running.
func (s *scan) findGoroutines() {
	left := reasons{}
	for _, f := range s.functions {
		runs := s.runs(f)
		if len(runs) == 0 {
			continue
		}
		for i := range instructions(f) {
			has, starts := s.starts(i)
			if !starts || s.waits(f, has) {
				continue
			}
			pos := i.Pos()
			if call := s.calls[pos]; call != nil {
				pos = call.Pos()
			}
			s.find(Look, "Goroutine", pos, "%s: it starts a goroutine", titles(runs))
			left.add(runs, s.where(pos))
		}
	}
	left.doubt("it leaves a goroutine running: ")
}

// starts reports whether an instruction starts a goroutine: a go statement, time.AfterFunc, or a group's Go. has are
// variables by which the goroutine can tell that it has ended.
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
// in a select with other cases may go on without it.
func (s *scan) waits(f *ssa.Function, has []ssa.Value) bool {
	for i := range instructions(f) {
		var on ssa.Value
		switch i := i.(type) {
		case *ssa.UnOp:
			if i.Op == token.ARROW {
				on = i.X
			}
		case *ssa.Call:
			if name := calleeOf(&i.Call); isGroup(name) && name.name == "Wait" {
				on = receiver(&i.Call)
			}
		case *ssa.Defer:
			if name := calleeOf(&i.Call); isGroup(name) && name.name == "Wait" {
				on = receiver(&i.Call)
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

// findLate looks for goroutines and runnables that build controllers, such as once there are certificates. One that
// makes the manager, too, builds them before that has started.
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
