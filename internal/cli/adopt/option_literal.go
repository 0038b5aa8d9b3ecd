package adopt

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// literalOf returns the composite literal that an expression is, or that the local variable which it names holds for
// sure: one that is declared with it, gets no other value and is not passed on by its address. If there is none, why
// says what to look at.
func (s *source) literalOf(info *types.Info, e ast.Expr) (lit *ast.CompositeLit, why string) {
	if lit := literal(e); lit != nil {
		return lit, ""
	}
	v := optionVariable(e)
	fn := s.module.enclosing(e)
	if v == nil || fn == nil {
		return nil, "they are no literal"
	}
	obj, ok := info.ObjectOf(v).(*types.Var)
	if !ok {
		return nil, "they are no variable"
	}
	line := func(n ast.Node) int { return s.module.at(n).Line }
	note := func(format string, args ...any) {
		if why == "" {
			why = fmt.Sprintf(format, args...)
		}
	}
	_, pointer := types.Unalias(obj.Type()).(*types.Pointer)
	assigned := 0
	ast.Inspect(fn, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || info.ObjectOf(id) != obj {
			return true
		}
		switch parent := s.module.parents[id].(type) {
		case *ast.AssignStmt:
			at := indexOf(parent.Lhs, id)
			switch {
			case at < 0 && pointer:
				note("%s is assigned to something else in line %d, which may change them", v.Name, line(id))
			case at < 0:
			case len(parent.Lhs) != len(parent.Rhs):
				note("a call gives %s its value in line %d", v.Name, line(id))
			default:
				assigned++
				if info.Defs[id] == obj {
					lit = literal(parent.Rhs[at])
				}
			}
			if at >= 0 && assigned > 1 {
				note("%s gets another value in line %d", v.Name, line(id))
			}
		case *ast.ValueSpec:
			if info.Defs[id] != obj {
				if pointer {
					note("%s is assigned to something else in line %d, which may change them", v.Name, line(id))
				}
				break
			}
			assigned++
			if len(parent.Values) == len(parent.Names) {
				for i, name := range parent.Names {
					if name == id {
						lit = literal(parent.Values[i])
					}
				}
			}
		default:
			if what := s.leaks(id, pointer); what != "" {
				note("%s in line %d", what, line(id))
			}
		}
		return true
	})
	if why == "" && lit == nil {
		why = v.Name + " is not declared with a literal"
	}
	if why != "" {
		return nil, why
	}
	return lit, ""
}

// optionVariable returns the variable that holds options, or a pointer to them, or nil.
func optionVariable(e ast.Expr) *ast.Ident {
	e = ast.Unparen(e)
	if star, ok := e.(*ast.StarExpr); ok {
		e = ast.Unparen(star.X)
	}
	id, _ := e.(*ast.Ident)
	return id
}

func indexOf(list []ast.Expr, e ast.Expr) int {
	for i, x := range list {
		if ast.Unparen(x) == e {
			return i
		}
	}
	return -1
}

// leaks says how a use of a variable may change the options that it holds, or points to: by its address, or that of a
// field, or all at once through the pointer. Fields that are set one by one are looked at by setLater.
func (s *source) leaks(id *ast.Ident, pointer bool) string {
	var n ast.Node = id
	for {
		switch parent := s.module.parents[n].(type) {
		case *ast.ParenExpr:
			n = parent
		case *ast.SelectorExpr:
			if parent.X != n {
				return ""
			}
			n = parent
		case *ast.StarExpr:
			if assign, ok := s.module.parents[parent].(*ast.AssignStmt); ok && indexOf(assign.Lhs, parent) >= 0 && n == id {
				return "*" + id.Name + " gets another value"
			}
			return ""
		case *ast.UnaryExpr:
			if parent.Op == token.AND {
				return types.ExprString(parent) + " is passed on"
			}
			return ""
		case *ast.RangeStmt:
			if parent.Key == n || parent.Value == n {
				return id.Name + " gets other values"
			}
			return ""
		default:
			if pointer && n == id {
				return id.Name + ", a pointer, is passed on"
			}
			return ""
		}
	}
}
