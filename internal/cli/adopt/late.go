package adopt

import (
	"go/ast"
	"slices"
)

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
	by := func(c *call) bool { return n.Pos() <= c.Pos() && c.End() <= n.End() || reached[s.keyOf(c.CallExpr)] }
	return slices.ContainsFunc(s.controllers, func(c *controller) bool { return by(c.call) }) &&
		!slices.ContainsFunc(s.managers, func(m *manager) bool { return by(m.call) })
}

// startOf returns the functions that may run when a runnable does: what function literals in it name, functions that it
// is made of, and the method Start of its type.
func (s *source) startOf(v given) map[string]bool {
	var keys []string
	if fn := methodOf(v.info.TypeOf(v.Expr), "Start"); fn != nil {
		keys = s.reach.keysOf(fn)
	}
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
	builds := map[string]bool{}
	for _, c := range s.controllers {
		builds[s.keyOf(c.CallExpr)] = true
	}
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
