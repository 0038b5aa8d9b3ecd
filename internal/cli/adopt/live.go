package adopt

import (
	"go/ast"
	"go/types"
	"slices"
)

// isLive reports whether an expression is surely a reader that asks the API server: that of GetAPIReader, or a client
// that client.New makes. Variables, fields and parameters are followed, all of whose values must be such.
func (s *source) isLive(v given) bool { return s.staysLive(v, 0) }

func (s *source) staysLive(v given, depth int) bool {
	if depth > 4 { // a reader that is handed on more often than that is not followed
		return false
	}
	var list []given
	switch e := ast.Unparen(v.Expr).(type) {
	case *ast.CallExpr:
		c, ok := calleeIn(v.info, e.Fun)
		if !ok {
			return false
		}
		if c.name == "GetAPIReader" || c == (callee{pkg: clientPath, name: "New"}) {
			return true
		}
		if fn, ok := objectOf(v.info, e.Fun).(*types.Func); ok {
			for _, key := range s.reach.keysOf(fn) {
				list = append(list, s.returned(key, v.result)...)
			}
		}
	case *ast.Ident, *ast.SelectorExpr:
		if obj, ok := objectOf(v.info, e).(*types.Var); ok {
			list = s.values.of[s.module.variableKey(obj)]
		}
	}
	return len(list) > 0 && !slices.ContainsFunc(list, func(v given) bool { return !s.staysLive(v, depth+1) })
}
