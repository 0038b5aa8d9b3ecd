package adopt

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// findMemory looks for what functions that run for controllers keep in memory: what they write into fields of the
// reconciler, variables of a package, and variables around a function literal, also by way of the module's own types.
// What only constructors set is none of it.
func (s *source) findMemory() {
	kept := noted{}
	for _, key := range s.reach.sorted() {
		f, runs, told := s.reach.functions[key], s.runsFor(key), map[keeps]bool{}
		if len(runs) == 0 {
			continue
		}
		s.reach.inspect(f, func(n ast.Node) bool {
			for _, e := range s.writes(f.info, n) {
				at, what := s.module.at(n), types.ExprString(container(e))
				keeping := slices.DeleteFunc(slices.Clone(runs), func(c *controller) bool {
					h := holder{s, c, map[ast.Expr]bool{}}
					return told[keeps{c, what}] || !h.holds(given{Expr: e, info: f.info}, false)
				})
				if len(keeping) == 0 {
					continue
				}
				for _, c := range keeping {
					told[keeps{c, what}] = true // a controller has one finding of a variable in a function
				}
				s.found(Look, codeMemory, at, "%s %s, which stays in memory", does(keeping, "write"), what)
				kept.add(keeping, "%s (%s:%d)", what, at.File, at.Line)
			}
			return true
		})
	}
	kept.doubt("it keeps something in memory: ")
}

// keeps is a controller and what it keeps.
type keeps struct {
	*controller
	what string
}

// container returns what has the element that is written.
func container(e ast.Expr) ast.Expr {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.UnaryExpr:
			e = x.X
		default:
			return x
		}
	}
}

// writes returns what a node writes: the left side of an assignment, what a builtin function changes, and what a
// method of another package's container changes. Those of the module's own types are looked at themselves.
func (s *source) writes(info *types.Info, n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return slices.DeleteFunc([]ast.Expr{n.Key, n.Value}, func(e ast.Expr) bool { return e == nil })
		}
	case *ast.SendStmt:
		return []ast.Expr{&ast.StarExpr{X: n.Chan}}
	case *ast.CallExpr:
		if len(n.Args) > 0 {
			obj := objectOf(info, n.Fun)
			if _, ok := obj.(*types.Builtin); ok && slices.Contains([]string{"delete", "clear", "copy"}, obj.Name()) {
				return []ast.Expr{&ast.StarExpr{X: n.Args[0]}}
			}
			c, ok := calleeIn(info, n.Fun)
			if ok && c.pkg == "sync/atomic" && c.recv == "" && !strings.HasPrefix(c.name, "Load") {
				return []ast.Expr{&ast.StarExpr{X: n.Args[0]}}
			}
		}
		if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && s.changes(info, sel) {
			if isReference(info.TypeOf(sel.X)) {
				return []ast.Expr{&ast.StarExpr{X: sel.X}}
			}
			return []ast.Expr{sel.X}
		}
	}
	return nil
}

// standard are the methods of types of package sync and sync/atomic that keep something.
var standard = []string{"Store", "LoadOrStore", "LoadAndDelete", "Swap", "CompareAndSwap", "CompareAndDelete", "Delete",
	"Clear", "Do", "Add", "And", "Or"}

// keepers are the names of methods by which containers of other packages change.
var keepers = []string{"Add", "AddIfNotPresent", "Set", "SetDefault", "SetWithTTL", "Put", "Store", "Insert", "Push",
	"PushBack", "PushFront", "Append", "Delete", "Remove", "Forget", "Clear", "Next", "AddAfter", "AddRateLimited"}

// stateless are parts of import paths of types whose such methods do not keep what a reconcile goes by: clients,
// loggers, metrics and traces.
var stateless = []string{"prometheus", "opentelemetry", "opencensus", "go-logr", "go.uber.org/zap", "metric", "statsd",
	runtimePath + "/", "k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/tools/record"}

// changes reports whether a method of another module's type changes what has it. Those with a context ask somebody
// else.
func (s *source) changes(info *types.Info, sel *ast.SelectorExpr) bool {
	fn, ok := info.Uses[sel.Sel].(*types.Func)
	if !ok || fn.Pkg() == nil || len(s.reach.keysOf(fn)) > 0 {
		return false
	}
	sig := fn.Type().(*types.Signature)
	switch path := fn.Pkg().Path(); {
	case sig.Recv() == nil:
		return false
	case path == "sync" && isNamed(sig.Recv().Type(), path, "WaitGroup"):
		return false
	case path == "sync" || path == "sync/atomic":
		return slices.Contains(standard, fn.Name())
	case sig.Params().Len() > 0 && isNamed(sig.Params().At(0).Type(), "context", "Context"):
		return false
	case slices.ContainsFunc(stateless, func(part string) bool { return strings.Contains(path, part) }):
		return false
	}
	return slices.Contains(keepers, fn.Name())
}

// holder says whether an expression leads to what outlives a controller's reconcile.
type holder struct {
	*source
	c    *controller
	seen map[ast.Expr]bool
}

// holds reports whether what an expression names outlives a reconcile. behind: what is written is not the variable
// itself but what it points to, so a copy of the variable leads there, too.
func (h *holder) holds(v given, behind bool) bool {
	e := ast.Unparen(v.Expr)
	next := func(x ast.Expr, behind bool) bool { return h.holds(given{Expr: x, info: v.info}, behind) }
	switch x := e.(type) {
	case *ast.StarExpr:
		return next(x.X, true)
	case *ast.UnaryExpr:
		return x.Op == token.AND && next(x.X, false)
	case *ast.IndexExpr:
		return next(x.X, behind || !isArray(v.info.TypeOf(x.X)))
	case *ast.SliceExpr:
		return next(x.X, behind)
	case *ast.TypeAssertExpr:
		return next(x.X, behind)
	case *ast.CallExpr:
		return h.call(v, x, behind)
	case *ast.SelectorExpr:
		if chosen := v.info.Selections[x]; chosen != nil {
			return h.field(v, x, chosen, behind)
		}
	}
	obj, ok := objectOf(v.info, e).(*types.Var)
	if !ok || h.seen[e] {
		return false
	}
	h.seen[e] = true
	switch {
	case obj.Pkg() != nil && obj.Parent() == obj.Pkg().Scope():
		return h.ownPackage(obj.Pkg())
	case h.isAround(e, obj):
		return true
	case behind && h.isReceiver(obj):
		return true
	}
	list := h.values.of[h.module.variableKey(obj)]
	return behind && h.any(slices.DeleteFunc(slices.Clone(list), func(v given) bool {
		return v.handed && h.c.reached[h.keyOf(v.Expr)] == notReached
	}))
}

// any reports whether one of the values leads to what outlives a reconcile.
func (h *holder) any(list []given) bool {
	return slices.ContainsFunc(list, func(v given) bool { return h.holds(v, true) })
}

// field follows a field: to what has it, and to what it gets anywhere if that is a pointer or the like.
func (h *holder) field(v given, x *ast.SelectorExpr, chosen *types.Selection, behind bool) bool {
	if h.holds(given{Expr: x.X, info: v.info}, behind || chosen.Indirect() || isReference(v.info.TypeOf(x.X))) {
		return true
	}
	f, ok := chosen.Obj().(*types.Var)
	if !ok || !behind || h.seen[x] || !isReference(f.Type()) || !h.ownPackage(f.Pkg()) {
		return false
	}
	h.seen[x] = true
	return h.any(h.values.of[h.module.variableKey(f)])
}

// call follows what a call returns: of a conversion and append their argument, of the module's functions what they
// return, and of sync.Map and the like what is in them.
func (h *holder) call(v given, x *ast.CallExpr, behind bool) bool {
	if !behind || h.seen[x] {
		return false
	}
	h.seen[x] = true
	obj := objectOf(v.info, x.Fun)
	if _, builtin := obj.(*types.Builtin); builtin && obj.Name() == "append" || v.info.Types[x.Fun].IsType() {
		return len(x.Args) > 0 && h.holds(given{Expr: x.Args[0], info: v.info}, behind)
	}
	fn, ok := obj.(*types.Func)
	if !ok {
		return false
	}
	for _, key := range h.reach.keysOf(fn) {
		if h.any(h.returned(key, v.result)) {
			return true
		}
	}
	sel, ok := ast.Unparen(x.Fun).(*ast.SelectorExpr)
	if ok && fn.Pkg() != nil && (fn.Pkg().Path() == "sync" || fn.Pkg().Path() == "sync/atomic") {
		return h.holds(given{Expr: sel.X, info: v.info}, true)
	}
	return false
}

// isReceiver reports whether a variable is the receiver of a method that the controller runs by itself: its Reconcile,
// or a handler.
func (h *holder) isReceiver(obj types.Object) bool {
	return slices.ContainsFunc(h.c.roots, func(r root) bool { return h.reach.functions[r.key].receiver() == obj })
}

// isAround reports whether a variable is one of the function around a literal that runs by itself, and that function
// does not run for controllers: it is a constructor.
func (h *holder) isAround(e ast.Node, obj *types.Var) bool {
	for n := e; n != nil; n = h.module.parents[n] {
		if lit, ok := n.(*ast.FuncLit); ok && h.reach.literals[lit] != "" {
			outside := obj.Pos() < lit.Pos() || obj.Pos() > lit.End()
			return outside && obj.Type().String() != "error" && len(h.runsFor(h.keyOf(h.module.parents[lit]))) == 0
		}
	}
	return false
}

// ownPackage reports whether a package is the module's.
func (h *holder) ownPackage(pkg *types.Package) bool {
	return slices.ContainsFunc(h.module.packages, func(p *packages.Package) bool { return p.PkgPath == pkg.Path() })
}

func isArray(t types.Type) bool {
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Array)
	return ok
}

// isReference reports whether a copy of a value leads to the same things.
func isReference(t types.Type) bool {
	if t == nil {
		return false
	}
	switch t.Underlying().(type) {
	case *types.Pointer, *types.Map, *types.Chan, *types.Interface:
		return true
	}
	return false
}
