package adopt

import (
	"go/ast"
	"go/types"
	"slices"
)

// building returns the functions that build controllers, or that make managers.
func (s *source) building() (controllers, managers map[string]bool) {
	controllers, managers = map[string]bool{}, map[string]bool{}
	for _, c := range s.controllers {
		controllers[s.keyOf(c.CallExpr)] = true
	}
	for _, m := range s.managers {
		managers[s.keyOf(m.CallExpr)] = true
	}
	return controllers, managers
}

// findLate looks for goroutines and runnables that build controllers, such as once there are certificates. One that
// makes the manager, too, builds them before that has started.
func (s *source) findLate() {
	for file, p := range s.module.inFile {
		if s.module.isTest(file) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if start, ok := n.(*ast.GoStmt); ok && s.buildsLate(start, s.reach.fromNode(p.TypesInfo, start)) {
				s.found(Must, codeLate, s.module.at(start), "a goroutine builds controllers")
			}
			return true
		})
	}
	for _, c := range s.calls {
		if c.test || !c.method(managerPath, "Manager", "Add") && !c.method(ctrlrtPath, "Manager", "Add", "AddDuty") ||
			len(c.Args) == 0 {
			continue
		}
		arg := given{Expr: c.Args[len(c.Args)-1], info: c.in.TypesInfo}
		if s.buildsLate(arg, s.startOf(arg)) {
			s.found(Must, codeLate, s.module.at(c.CallExpr), "a runnable builds controllers")
		}
	}
}

// buildsLate reports whether a node, or a function that it reaches, builds controllers, and makes no manager.
func (s *source) buildsLate(n ast.Node, reached map[string]bool) bool {
	controllers, managers := s.building()
	within := func(c *call) bool { return n.Pos() <= c.Pos() && c.End() <= n.End() }
	for key := range reached {
		if managers[key] {
			return false
		}
	}
	for _, m := range s.managers {
		if within(m.call) {
			return false
		}
	}
	for key := range reached {
		if controllers[key] {
			return true
		}
	}
	return slices.ContainsFunc(s.controllers, func(c *controller) bool { return within(c.call) })
}

// startOf returns the functions that may run when a runnable does: what function literals in it name, functions that it
// is made of, and the method Start of its type.
func (s *source) startOf(v given) map[string]bool {
	var keys []string
	starts := func(t types.Type) {
		if named := namedOf(t); named != nil && !types.IsInterface(named) {
			if m := types.NewMethodSet(types.NewPointer(named)).Lookup(nil, "Start"); m != nil {
				if fn, ok := m.Obj().(*types.Func); ok {
					keys = append(keys, s.reach.keysOf(fn)...)
				}
			}
		}
	}
	starts(v.info.TypeOf(v.Expr))
	ast.Inspect(v.Expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			for key := range s.reach.fromNode(v.info, n) {
				keys = append(keys, key)
			}
			return false
		case *ast.Ident:
			if !s.isCalled(n) {
				keys = append(keys, s.reach.namedBy(v.info, n)...)
			}
		}
		return true
	})
	return s.reach.from(keys)
}

// findTests looks for tests that build controllers with a stock manager: sharded ones need a manager of package ctrlrt.
func (s *source) findTests() {
	builds, _ := s.building()
	seen := map[*ast.File]bool{}
	for _, c := range s.calls {
		file := s.module.file(c.CallExpr)
		if !c.test || seen[file] || !c.is(runtimePath, "NewManager") && !c.is(managerPath, "New") {
			continue
		}
		seen[file] = true
		for name := range s.reach.fromNode(c.in.TypesInfo, file) {
			if builds[name] {
				s.found(Look, codeTests, s.module.at(c.CallExpr), "a test builds controllers with a stock manager")
				break
			}
		}
	}
}
