package adopt

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/packages"
)

// Import paths.
const (
	runtimePath = "sigs.k8s.io/controller-runtime"
	rotaPath    = "github.com/rota-dev/rota"
	ctrlrtPath  = rotaPath + "/ctrlrt"
	clientGo    = "k8s.io/client-go"
)

// callee is what a call calls: a function, a variable that holds one, or a method. Methods of embedded types, and of
// interfaces, are those of the type that declares them.
type callee struct {
	pkg, recv, name string
}

// call is a call of something that has a name.
type call struct {
	callee
	*ast.CallExpr
	in   *packages.Package
	test bool
}

// is reports whether a call is of a function of a package.
func (c *call) is(pkg string, names ...string) bool {
	return c.pkg == pkg && c.recv == "" && slices.Contains(names, c.name)
}

// method reports whether a call is of a method of a type.
func (c *call) method(pkg, recv string, names ...string) bool {
	return c.pkg == pkg && c.recv == recv && slices.Contains(names, c.name)
}

// callsOf returns all calls of what has a name, in the order of files.
func callsOf(m *module) []*call {
	var out []*call
	visit := func(p *packages.Package, tests bool) {
		for _, f := range p.Syntax {
			if tests != m.isTest(f) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok {
					if name, ok := calleeIn(p.TypesInfo, c.Fun); ok {
						out = append(out, &call{name, c, p, tests})
					}
				}
				return true
			})
		}
	}
	for _, p := range m.packages {
		visit(p, false)
	}
	for _, p := range m.tests {
		visit(p, true)
	}
	return out
}

// objectOf returns what an expression names, if it is a name, a selector or an instance of either.
func objectOf(info *types.Info, e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return info.ObjectOf(e)
	case *ast.SelectorExpr:
		return info.ObjectOf(e.Sel)
	case *ast.IndexExpr:
		return objectOf(info, e.X)
	case *ast.IndexListExpr:
		return objectOf(info, e.X)
	}
	return nil
}

// calleeIn returns what a call calls. Of a package that could not be imported the functions are known by their names.
func calleeIn(info *types.Info, fun ast.Expr) (callee, bool) {
	if obj := objectOf(info, fun); obj != nil {
		return calleeOf(obj), true
	}
	if sel, ok := ast.Unparen(fun).(*ast.SelectorExpr); ok {
		if id, ok := sel.X.(*ast.Ident); ok {
			if pkg, ok := info.Uses[id].(*types.PkgName); ok {
				return callee{pkg: pkg.Imported().Path(), name: sel.Sel.Name}, true
			}
		}
	}
	return callee{}, false
}

func calleeOf(obj types.Object) callee {
	if obj.Pkg() == nil {
		return callee{name: obj.Name()}
	}
	c := callee{pkg: obj.Pkg().Path(), name: obj.Name()}
	if fn, ok := obj.(*types.Func); ok {
		if recv := fn.Type().(*types.Signature).Recv(); recv != nil {
			if named := namedOf(recv.Type()); named != nil {
				c.recv = named.Obj().Name()
			} else {
				c.recv = "?"
			}
		}
		return c
	}
	if v, ok := obj.(*types.Var); ok && (v.IsField() || v.Parent() != obj.Pkg().Scope()) {
		return callee{name: obj.Name()} // a function in a field or a local variable
	}
	return c
}

// namedOf returns the named type of a type or of a pointer to one; nil: it has none.
func namedOf(t types.Type) *types.Named {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	named, _ := t.(*types.Named)
	return named
}

// isNamed reports whether a type, or what it points to, is the one of that name.
func isNamed(t types.Type, pkg, name string) bool {
	if t == nil {
		return false
	}
	named := namedOf(t)
	return named != nil && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == pkg && named.Obj().Name() == name
}

// field returns the value of a field of a composite literal, or nil.
func field(lit *ast.CompositeLit, name string) *ast.KeyValueExpr {
	if lit == nil {
		return nil
	}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok && id.Name == name {
				return kv
			}
		}
	}
	return nil
}

// literal returns the composite literal of an expression, through & and parentheses.
func literal(e ast.Expr) *ast.CompositeLit {
	switch e := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		return e
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return literal(e.X)
		}
	}
	return nil
}

// text returns the value of a constant string, "" if it is none.
func text(info *types.Info, e ast.Expr) string {
	v := info.Types[e].Value
	if v == nil || v.Kind() != constant.String {
		return ""
	}
	return constant.StringVal(v)
}

// truth returns the value of a constant bool, also through a pointer that a function such as ptr.To makes: a generic
// one of a value to a pointer to it. What another function makes of a constant is known when it runs.
func truth(info *types.Info, e ast.Expr) (value, known bool) {
	if v := info.Types[e].Value; v != nil && v.Kind() == constant.Bool {
		return constant.BoolVal(v), true
	}
	if c, ok := ast.Unparen(e).(*ast.CallExpr); ok && len(c.Args) == 1 && makesPointer(objectOf(info, c.Fun)) {
		return truth(info, c.Args[0])
	}
	return false, false
}

// makesPointer reports whether a function is one of a value of any type to a pointer to it, func[T any](T) *T.
func makesPointer(obj types.Object) bool {
	fn, ok := obj.(*types.Func)
	if !ok {
		return false
	}
	sig := fn.Origin().Type().(*types.Signature)
	if sig.TypeParams().Len() != 1 || sig.Params().Len() != 1 || sig.Results().Len() != 1 {
		return false
	}
	p, ok := sig.Results().At(0).Type().(*types.Pointer)
	return ok && types.Identical(p.Elem(), sig.TypeParams().At(0)) &&
		types.Identical(sig.Params().At(0).Type(), sig.TypeParams().At(0))
}

// isNil reports whether an expression is nil.
func isNil(info *types.Info, e ast.Expr) bool { return info.Types[e].IsNil() }
