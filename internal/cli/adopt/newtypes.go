package adopt

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// What package ctrlrt makes has other types than what controller-runtime makes, so variables that get their type from
// such a call have another one after the edit. This file says where that would not compile, or may not.

// managerType says which use of the manager's variable needs the old type; empty: none does.
func (e *editor) managerType(f *goFile, fn *ast.FuncDecl, assign *ast.AssignStmt) (kept string) {
	id, ok := assign.Lhs[0].(*ast.Ident)
	if !ok || assign.Tok != token.DEFINE || f.info.Defs[id] == nil {
		return "" // it keeps the type that it was declared with
	}
	v := f.info.Defs[id]
	ast.Inspect(fn, func(n ast.Node) bool {
		if use, ok := n.(*ast.Ident); ok && f.info.Uses[use] == v && kept == "" {
			if what := e.needsType(f.info, use); what != "" {
				kept = fmt.Sprintf("%s %s in line %d, which the manager of ctrlrt may not fit", id.Name, what,
					e.module.at(use).Line)
			}
		}
		return true
	})
	return kept
}

// needsType says how a use of a variable depends on its very type; empty: any type with the same methods does.
func (e *editor) needsType(info *types.Info, use *ast.Ident) string {
	n := ast.Expr(use)
	for {
		paren, ok := e.module.parents[n].(*ast.ParenExpr)
		if !ok {
			break
		}
		n = paren
	}
	switch parent := e.module.parents[n].(type) {
	case *ast.UnaryExpr:
		if parent.Op == token.AND {
			return "is passed on by its address"
		}
	case *ast.TypeAssertExpr:
		return "is asked for its type"
	case *ast.AssignStmt:
		switch {
		case indexOf(parent.Lhs, n) >= 0:
			return "gets another value"
		case parent.Tok == token.DEFINE:
			return "is copied to another variable"
		}
	case *ast.ValueSpec:
		if parent.Type == nil {
			return "is copied to another variable"
		}
	case *ast.CallExpr:
		if parent.Fun != n && generic(info, parent.Fun) {
			return "is passed to a generic function"
		}
	}
	return ""
}

// generic reports whether a call's types follow from its arguments.
func generic(info *types.Info, fun ast.Expr) bool {
	switch fun := ast.Unparen(fun).(type) {
	case *ast.Ident:
		_, ok := info.Instances[fun]
		return ok
	case *ast.SelectorExpr:
		_, ok := info.Instances[fun.Sel]
		return ok
	}
	return false
}

// builderType says why the variable that holds a controller's builder cannot have the new type; empty: it can, or there
// is none.
func (e *editor) builderType(c *controller) (kept string) {
	top := chainOf(e.module, c.CallExpr)
	var id *ast.Ident
	declared := false
	switch parent := e.module.parents[top].(type) {
	case *ast.AssignStmt:
		if i := indexOf(parent.Rhs, top); i >= 0 && len(parent.Lhs) == len(parent.Rhs) {
			id, _ = parent.Lhs[i].(*ast.Ident)
		}
	case *ast.ValueSpec:
		for i, x := range parent.Values {
			if x == top {
				id, declared = parent.Names[i], parent.Type != nil
			}
		}
	}
	if id == nil || id.Name == "_" || !isBuilder(c.info.TypeOf(top)) {
		return ""
	}
	if declared || c.info.Defs[id] == nil {
		return fmt.Sprintf("its builder is in %s, which is declared with a type", id.Name)
	}
	v, fn := c.info.Defs[id], e.module.enclosing(id)
	if fn == nil {
		return ""
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		assign, ok := n.(*ast.AssignStmt)
		if !ok || len(assign.Lhs) != len(assign.Rhs) {
			return true
		}
		for i, l := range assign.Lhs {
			to, ok := ast.Unparen(l).(*ast.Ident)
			if ok && c.info.Uses[to] == v && c.info.Uses[firstOf(assign.Rhs[i])] != v {
				kept = fmt.Sprintf("%s gets another builder in line %d", id.Name, e.module.at(assign).Line)
			}
		}
		return true
	})
	return kept
}

// isBuilder reports whether a type is that of a builder, and not what its last call returns.
func isBuilder(t types.Type) bool {
	named := namedOf(t)
	return named != nil && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == builderPath
}

// chainOf returns the last of the calls of methods that follow each other.
func chainOf(m *module, call ast.Expr) ast.Expr {
	for {
		sel, ok := m.parents[call].(*ast.SelectorExpr)
		if !ok || sel.X != call {
			return call
		}
		next, ok := m.parents[sel].(*ast.CallExpr)
		if !ok || next.Fun != ast.Expr(sel) {
			return call
		}
		call = next
	}
}

// firstOf returns the variable whose methods are called one after the other, or nil.
func firstOf(x ast.Expr) *ast.Ident {
	for {
		switch y := ast.Unparen(x).(type) {
		case *ast.CallExpr:
			x = y.Fun
		case *ast.SelectorExpr:
			x = y.X
		case *ast.Ident:
			return y
		default:
			return nil
		}
	}
}
