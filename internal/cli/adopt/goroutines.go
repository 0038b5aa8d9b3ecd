package adopt

import (
	"go/ast"
	"go/token"
	"go/types"
)

// findGoroutines looks for goroutines that functions which run for controllers leave running.
func (s *source) findGoroutines() {
	left := noted{}
	for _, key := range s.reach.sorted() {
		f, runs := s.reach.functions[key], s.runsFor(key)
		if len(runs) == 0 {
			continue
		}
		s.reach.inspect(f, func(n ast.Node) bool {
			if group, starts := startsGoroutine(f.info, n); !starts || s.waitsFor(f, n, group) {
				return true
			}
			at := s.module.at(n)
			s.found(Look, codeGoroutine, at, "%s a goroutine", does(runs, "start"))
			left.add(runs, "%s:%d", at.File, at.Line)
			return true
		})
	}
	left.doubt("it leaves a goroutine running: ")
}

// startsGoroutine reports whether a node starts a goroutine: a go statement, time.AfterFunc, or the method Go of a
// group, which is returned then.
func startsGoroutine(info *types.Info, n ast.Node) (group types.Object, starts bool) {
	switch n := n.(type) {
	case *ast.GoStmt:
		return nil, true
	case *ast.CallExpr:
		if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" && isGroup(info.TypeOf(sel.X)) {
			return objectOf(info, addressed(sel.X)), true
		}
		c, ok := calleeIn(info, n.Fun)
		return nil, ok && c == callee{pkg: "time", name: "AfterFunc"}
	}
	return nil, false
}

// isGroup reports whether a type is a group of goroutines with a method Wait.
func isGroup(t types.Type) bool {
	return t != nil && (isNamed(t, "sync", "WaitGroup") || isNamed(t, "golang.org/x/sync/errgroup", "Group"))
}

// waitsFor reports whether the function around a node that starts a goroutine waits for that: by the Wait of a group
// which the goroutine has, or by a receive from a channel that it sends on, closes or is given. A receive in a select
// with other cases may go on without it.
func (s *source) waitsFor(f *function, start ast.Node, group types.Object) bool {
	body := f.body
	for n := s.module.parents[start]; n != f.node; n = s.module.parents[n] {
		if lit, ok := n.(*ast.FuncLit); ok {
			body = lit.Body
			break
		}
	}
	waits := func(e ast.Expr) bool {
		obj := objectOf(f.info, addressed(e))
		return obj != nil && (obj == group || group == nil && s.signals(f.info, start, obj))
	}
	found := false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false // what a goroutine waits for does not count
		case *ast.CallExpr:
			if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && sel.Sel.Name == "Wait" && isGroup(f.info.TypeOf(sel.X)) {
				found = found || waits(sel.X)
			}
		case *ast.SelectStmt:
			if len(n.Body.List) > 1 {
				return false
			}
		case *ast.UnaryExpr:
			found = found || n.Op == token.ARROW && waits(n.X)
		case *ast.RangeStmt:
			if _, ok := types.Unalias(f.info.TypeOf(n.X)).(*types.Chan); ok {
				found = found || waits(n.X)
			}
		}
		return !found
	})
	return found
}

// signals reports whether a goroutine tells by a channel or a group that it has ended, or gets that as an argument.
func (s *source) signals(info *types.Info, start ast.Node, obj types.Object) bool {
	found := false
	ast.Inspect(start, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SendStmt:
			found = found || objectOf(info, n.Chan) == obj
		case *ast.CallExpr:
			for _, arg := range n.Args {
				found = found || objectOf(info, addressed(arg)) == obj
			}
			if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok {
				found = found || sel.Sel.Name == "Done" && objectOf(info, sel.X) == obj
			}
		}
		return !found
	})
	return found
}
