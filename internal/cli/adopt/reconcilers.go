package adopt

import (
	"go/ast"
	"go/types"
	"slices"
)

// role says for what of a controller a function runs. A higher one counts more.
type role int

const (
	notReached role = iota
	// choosing: a predicate, a rate limiter and the like. It has no context of the controller's.
	choosing
	// mapping: a handler, which makes requests of events.
	mapping
	// reconciling: the reconciler.
	reconciling
)

// roleOf says for what functions run that an argument of a builder's method has.
func roleOf(method string, arg int) role {
	switch {
	case method == "Complete" || method == "Build":
		return reconciling
	case method == "WatchesRawSource", arg == 1 && (method == "Watches" || method == "WatchesMetadata"):
		return mapping
	}
	return choosing
}

// root is a function that a controller runs.
type root struct {
	key  string
	role role
}

// run notes that a controller runs a function of the module.
func (c *controller) run(role role, keys ...string) {
	for _, key := range keys {
		if r := (root{key, role}); !slices.Contains(c.roots, r) {
			c.roots = append(c.roots, r)
		}
	}
}

// reachAll notes which functions run for the controller.
func (c *controller) reachAll(r *reach) {
	c.reached = map[string]role{}
	for _, role := range []role{choosing, mapping, reconciling} {
		var keys []string
		for _, root := range c.roots {
			if root.role == role {
				keys = append(keys, root.key)
			}
		}
		for key := range r.from(keys) {
			c.reached[key] = role
		}
	}
}

// finder looks for the functions behind an expression.
type finder struct {
	*source
	c    *controller
	role role
	seen map[ast.Expr]bool
}

// again reports whether an expression was looked at before, which ends recursion.
func (f *finder) again(e ast.Expr) bool {
	if f.seen[e] {
		return true
	}
	f.seen[e] = true
	return false
}

// reconciler finds the Reconcile that a value leads to: behind adapters such as reconcile.AsReconciler, constructors
// and variables. It returns false if some of what the value may be is not in the module.
func (f *finder) reconciler(v given) bool {
	e := ast.Unparen(v.Expr)
	if isNil(v.info, e) || f.again(e) {
		return true
	}
	if lit, ok := e.(*ast.FuncLit); ok {
		f.c.run(f.role, f.reach.literal(v.info, lit))
		return true
	}
	if f.method(v.info.TypeOf(e)) {
		return true
	}
	switch x := e.(type) {
	case *ast.CallExpr:
		fn, _ := objectOf(v.info, x.Fun).(*types.Func)
		if fn != nil && len(f.reach.keysOf(fn)) > 0 {
			return f.every(f.results(fn, v.result))
		}
		found := false // a conversion, or an adapter of another module
		for _, arg := range x.Args {
			found = f.reconciler(given{Expr: arg, info: v.info}) || found
		}
		return found && len(x.Args) > 0
	case *ast.TypeAssertExpr:
		return f.reconciler(given{Expr: x.X, info: v.info})
	}
	switch obj := objectOf(v.info, e).(type) {
	case *types.Func:
		keys := f.reach.keysOf(obj)
		f.c.run(f.role, keys...)
		return len(keys) > 0
	case *types.Var:
		return f.every(f.values.of[f.module.variableKey(obj)])
	}
	return false
}

// results are what a call of a function of the module may return.
func (f *finder) results(fn *types.Func, result int) (out []given) {
	for _, key := range f.reach.keysOf(fn) {
		out = append(out, f.returned(key, result)...)
	}
	return out
}

// every looks behind all values, of which there must be one.
func (f *finder) every(list []given) bool {
	all := len(list) > 0
	for _, v := range list {
		all = f.reconciler(v) && all
	}
	return all
}

// method takes the Reconcile of a type of the module.
func (f *finder) method(t types.Type) bool {
	fn := methodOf(t, "Reconcile")
	if fn == nil || f.reach.functions[fn.Origin().FullName()] == nil {
		return false
	}
	f.c.run(f.role, fn.Origin().FullName())
	f.c.reconciler = namedOf(t)
	if recv := namedOf(fn.Type().(*types.Signature).Recv().Type()); recv != nil {
		f.c.generic = recv
	}
	return true
}

// handlers finds the functions that an argument of a builder's method names, or holds: also in variables, and the
// methods of handlers and predicates of the module's own types.
func (f *finder) handlers(v given) {
	if f.again(v.Expr) {
		return
	}
	ast.Inspect(v.Expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			f.c.run(f.role, f.reach.literal(v.info, n))
			return false
		case *ast.CompositeLit:
			f.events(v.info.TypeOf(n))
		case *ast.Ident:
			switch obj := v.info.Uses[n].(type) {
			case *types.Func:
				f.c.run(f.role, f.reach.keysOf(obj)...)
			case *types.Var:
				f.events(obj.Type())
				switch obj.Type().Underlying().(type) {
				case *types.Signature, *types.Interface:
					for _, next := range f.values.of[f.module.variableKey(obj)] {
						f.handlers(next)
					}
				}
			}
		}
		return true
	})
}

// events takes the methods of a handler, or of a predicate, of the module.
func (f *finder) events(t types.Type) {
	if methodOf(t, "Generic") == nil {
		return
	}
	for _, name := range []string{"Create", "Update", "Delete", "Generic"} {
		if fn := methodOf(t, name); fn != nil {
			f.c.run(f.role, f.reach.keysOf(fn)...)
		}
	}
}
