package adopt

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
)

// values has what variables, fields, parameters and receivers get, anywhere in the module but its tests.
type values struct {
	of map[any][]given
	// named are functions that are used other than by a call, so not all of their arguments are known.
	named map[string]bool
}

// given is an expression whose value a variable gets.
type given struct {
	ast.Expr
	info *types.Info
	// to is the package of the variable that gets it.
	to string
	// result is which of a call's results it is.
	result int
	// call hands it to a parameter; nil: it is assigned. handed: it is for a parameter or a receiver.
	call   *call
	handed bool
}

// variableKey is the same for a field or a variable of a package as source and as an import.
func (m *module) variableKey(v *types.Var) any {
	v = v.Origin()
	switch {
	case v.Pkg() == nil:
	case v.IsField():
		pos := m.fset.Position(v.Pos())
		return fmt.Sprintf("%s %s %s:%d", v.Pkg().Path(), v.Name(), filepath.Base(pos.Filename), pos.Line)
	case v.Parent() == v.Pkg().Scope():
		return v.Pkg().Path() + "." + v.Name()
	}
	return v
}

// valuesOf reads what is assigned in the module, and handed to its functions.
func (s *source) valuesOf() *values {
	v := &values{of: map[any][]given{}, named: map[string]bool{}}
	for _, p := range s.module.packages {
		for _, file := range p.Syntax {
			if s.module.isTest(file) {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				v.read(s, p.TypesInfo, n)
				return true
			})
		}
	}
	for _, c := range s.calls {
		if !c.test {
			v.arguments(s, c)
		}
	}
	return v
}

// add notes that what an expression names gets a value.
func (v *values) add(s *source, to types.Object, val given) {
	if to, ok := to.(*types.Var); ok && val.Expr != nil {
		key := s.module.variableKey(to)
		if to.Pkg() != nil {
			val.to = to.Pkg().Path()
		}
		v.of[key] = append(v.of[key], val)
	}
}

// read notes what one node assigns.
func (v *values) read(s *source, info *types.Info, n ast.Node) {
	pairs := func(left, right []ast.Expr) {
		for i, l := range left {
			switch {
			case len(left) == len(right):
				v.add(s, objectOf(info, l), given{Expr: right[i], info: info})
			case len(right) == 1:
				v.add(s, objectOf(info, l), given{Expr: right[0], info: info, result: i})
			}
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok == token.ASSIGN || n.Tok == token.DEFINE {
			pairs(n.Lhs, n.Rhs)
		}
	case *ast.ValueSpec:
		left := make([]ast.Expr, len(n.Names))
		for i, id := range n.Names {
			left[i] = id
		}
		pairs(left, n.Values)
	case *ast.RangeStmt:
		if n.Value != nil {
			v.add(s, objectOf(info, n.Value), given{Expr: n.X, info: info})
		}
	case *ast.CompositeLit:
		v.literal(s, info, n)
	case *ast.CaseClause:
		if assign, ok := s.module.parents[s.module.parents[n]].(*ast.TypeSwitchStmt); ok {
			if def, ok := assign.Assign.(*ast.AssignStmt); ok && info.Implicits[n] != nil {
				v.add(s, info.Implicits[n], given{Expr: def.Rhs[0], info: info})
			}
		}
	case *ast.SelectorExpr:
		if chosen := info.Selections[n]; chosen != nil && chosen.Kind() == types.MethodVal {
			for _, key := range s.reach.keysOf(chosen.Obj().(*types.Func)) {
				v.add(s, s.reach.functions[key].receiver(), given{Expr: n.X, info: info, handed: true})
			}
		}
	case *ast.Ident:
		if fn, ok := info.Uses[n].(*types.Func); ok && !s.isCalled(n) {
			for _, key := range s.reach.keysOf(fn) {
				v.named[key] = true
			}
		}
	}
}

// isCalled reports whether a name stands where a call names its function.
func (s *source) isCalled(id *ast.Ident) bool {
	var at ast.Node = id
	for {
		switch parent := s.module.parents[at].(type) {
		case *ast.CallExpr:
			return parent.Fun == at
		case *ast.SelectorExpr:
			if parent.Sel != id {
				return false
			}
			at = parent
		case *ast.ParenExpr, *ast.IndexExpr, *ast.IndexListExpr:
			at = parent
		default:
			return false
		}
	}
}

// literal notes what a composite literal puts into fields.
func (v *values) literal(s *source, info *types.Info, lit *ast.CompositeLit) {
	t := info.TypeOf(lit)
	if t == nil {
		return
	}
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			v.add(s, objectOf(info, kv.Key), given{Expr: kv.Value, info: info})
		} else if i < st.NumFields() {
			v.add(s, st.Field(i), given{Expr: e, info: info})
		}
	}
}

// arguments notes what a call hands to the functions of the module that it may call.
func (v *values) arguments(s *source, c *call) {
	fn, ok := objectOf(c.in.TypesInfo, c.Fun).(*types.Func)
	if !ok {
		return
	}
	for _, key := range s.reach.keysOf(fn) {
		params := s.reach.functions[key].params()
		for i, arg := range c.Args {
			if len(params) > 0 {
				v.add(s, params[min(i, len(params)-1)], given{Expr: arg, info: c.in.TypesInfo, call: c, handed: true})
			}
		}
	}
}

// returned are the expressions that a function returns as one of its results.
func (s *source) returned(key string, result int) (out []given) {
	f := s.reach.functions[key]
	if f == nil {
		return nil
	}
	ast.Inspect(f.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			switch {
			case result < len(n.Results):
				out = append(out, given{Expr: n.Results[result], info: f.info})
			case len(n.Results) == 1:
				out = append(out, given{Expr: n.Results[0], info: f.info, result: result})
			case len(n.Results) == 0:
				if name := resultName(f.typ, result); name != nil {
					out = append(out, given{Expr: name, info: f.info})
				}
			}
		}
		return true
	})
	return out
}

// resultName returns the name of a result, or nil.
func resultName(t *ast.FuncType, result int) *ast.Ident {
	if t.Results == nil {
		return nil
	}
	i := 0
	for _, field := range t.Results.List {
		for _, name := range field.Names {
			if i == result {
				return name
			}
			i++
		}
	}
	return nil
}
