package adopt

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

const builderPath = runtimePath + "/pkg/builder"

// controller is a place that builds a controller with a builder, or by hand.
type controller struct {
	*call
	info *types.Info
	at   place
	// typed: its requests may be other than reconcile.Request. adopted: the builder is one of package ctrlrt; isDuty: it
	// is that of duties. raw: it was made without a builder.
	typed, adopted, isDuty, raw bool
	// escapes: the builder goes where it was not followed.
	escapes bool
	// chain are the calls of the builder's methods.
	chain []*ast.CallExpr

	name    string
	kind    kind
	hasFor  bool
	owns    []kind
	watches []kind
	// completes: its builder is completed; build: by Build.
	completes, build bool
	reconciler       *types.Named
	// generic is the type that has its Reconcile, with the types that stand for its parameters.
	generic *types.Named
	// roots are the functions that run for this controller: Reconcile, and those that the builder's calls name.
	roots []root
	// reached are the functions of the module that may run for it, and for what.
	reached map[string]role
	// whole: its manager is one of mgr.Whole(). everywhere: it needs no leader.
	whole, everywhere bool
	// sources are its raw ones.
	sources []rawSource

	// refused says why it cannot be sharded as it is, doubts why that may be wrong.
	refused, doubts []string
}

func (c *controller) doubt(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(c.doubts, text) {
		c.doubts = append(c.doubts, text)
	}
}

// title is how messages name it.
func (c *controller) title() string {
	switch {
	case c.name != "":
		return c.name
	case c.kind.known():
		return strings.ToLower(c.kind.name)
	}
	return "without a name"
}

// findControllers looks for builders, and for controllers without one.
func (s *source) findControllers() {
	for _, call := range s.calls {
		if call.test {
			continue
		}
		c := &controller{call: call, info: call.in.TypesInfo, at: s.module.at(call.CallExpr)}
		switch {
		case call.is(runtimePath, "NewControllerManagedBy"), call.is(builderPath, "ControllerManagedBy"):
		case call.is(builderPath, "TypedControllerManagedBy"):
			c.typed = true
		case call.is(ctrlrtPath, "NewControllerManagedBy"):
			c.adopted = true
		case call.is(ctrlrtPath, "NewDutyControllerManagedBy"):
			c.adopted, c.isDuty = true, true
		case call.is(runtimePath+"/pkg/controller", "New", "NewUnmanaged", "NewTyped", "NewTypedUnmanaged"):
			c.raw = true
			if len(call.Args) > 0 {
				c.name = text(c.info, call.Args[0])
			}
		default:
			continue
		}
		if !c.raw {
			c.whole = len(call.Args) == 1 && s.isWhole(given{Expr: call.Args[0], info: c.info})
			s.follow(c, call.CallExpr)
			s.read(c)
		} else if len(call.Args) > 1 {
			if kv := field(literal(call.Args[len(call.Args)-1]), "Reconciler"); kv != nil {
				s.finder(c, reconciling).reconciler(given{Expr: kv.Value, info: c.info})
			}
		}
		s.controllers = append(s.controllers, c)
	}
	for _, c := range s.controllers {
		c.reachAll(s.reach)
	}
}

func (s *source) finder(c *controller, role role) *finder {
	return &finder{s, c, role, map[ast.Expr]bool{}}
}

// follow collects the calls of a builder's methods, from an expression that has the builder.
func (s *source) follow(c *controller, from ast.Expr) {
	for n := ast.Node(from); ; {
		sel, ok := s.module.parents[n].(*ast.SelectorExpr)
		if !ok || sel.X != n {
			s.followValue(c, n)
			return
		}
		method, ok := s.module.parents[sel].(*ast.CallExpr)
		if !ok || method.Fun != sel {
			c.escapes = true
			return
		}
		if slices.Contains(c.chain, method) {
			return
		}
		c.chain = append(c.chain, method)
		if sel.Sel.Name == "Complete" || sel.Sel.Name == "Build" {
			return
		}
		n = method
	}
}

// followValue goes on where a builder is put into a variable. Anything else that is done with it is not followed.
func (s *source) followValue(c *controller, n ast.Node) {
	var id *ast.Ident
	switch parent := s.module.parents[n].(type) {
	case *ast.AssignStmt:
		i := slices.IndexFunc(parent.Rhs, func(e ast.Expr) bool { return e == n })
		if i >= 0 && len(parent.Lhs) == len(parent.Rhs) {
			id, _ = parent.Lhs[i].(*ast.Ident)
		}
	case *ast.ValueSpec:
		if i := slices.IndexFunc(parent.Values, func(e ast.Expr) bool { return e == n }); i >= 0 && parent.Type == nil {
			id = parent.Names[i]
		}
	case *ast.ExprStmt:
		return // a builder that is changed in place
	}
	fn := s.module.enclosing(n)
	if id == nil || fn == nil {
		c.escapes = true
		return
	}
	obj := c.info.ObjectOf(id)
	if v, ok := obj.(*types.Var); !ok || v.IsField() {
		c.escapes = id.Name != "_"
		return
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		use, ok := n.(*ast.Ident)
		if !ok || c.info.Uses[use] != obj {
			return true
		}
		switch parent := s.module.parents[use].(type) {
		case *ast.SelectorExpr:
			s.follow(c, use)
		case *ast.AssignStmt:
			if slices.Contains(parent.Rhs, ast.Expr(use)) {
				c.escapes = true
			}
		default:
			c.escapes = true
		}
		return true
	})
}

// read reads the calls of the builder's methods.
func (s *source) read(c *controller) {
	for _, m := range c.chain {
		name := m.Fun.(*ast.SelectorExpr).Sel.Name
		first := func() kind {
			if len(m.Args) == 0 {
				return kind{}
			}
			if lit := literal(m.Args[0]); lit != nil && isNamed(c.info.TypeOf(lit), runtimePath+"/pkg/source", "Kind") {
				if kv := field(lit, "Type"); kv != nil { // as older versions have it
					return s.kindOf(c.info, kv.Value, nil)
				}
			}
			return s.kindOf(c.info, m.Args[0], nil)
		}
		switch name {
		case "For":
			c.kind, c.hasFor = first(), true
		case "Owns":
			k := first()
			if !s.everyOwner(m) {
				c.owns = append(c.owns, k)
			}
		case "Watches", "WatchesMetadata":
			c.watches = append(c.watches, first())
			s.found(Look, codeWatches, s.module.at(m.Fun.(*ast.SelectorExpr).Sel), "%s watches %s", c.title(), nameOr(first()))
		case "WatchesRawSource":
			s.rawSource(c, m)
		case "Named":
			if len(m.Args) == 1 {
				c.name = text(c.info, m.Args[0])
			}
		case "WithOptions":
			if len(m.Args) == 1 {
				s.controllerOptions(c, m)
			}
		case "Complete", "Build":
			c.build, c.completes = c.build || name == "Build", true
			for _, arg := range m.Args {
				if !s.finder(c, reconciling).reconciler(given{Expr: arg, info: c.info}) {
					c.doubt("its reconciler was not found: %s", types.ExprString(arg))
				}
			}
			continue
		}
		for i, arg := range m.Args {
			s.finder(c, roleOf(name, i)).handlers(given{Expr: arg, info: c.info})
		}
	}
}

func nameOr(k kind) string {
	if k.known() {
		return k.String()
	}
	return "a kind that is not known before the program runs"
}

// everyOwner reports whether an Owns has the option MatchEveryOwner.
func (s *source) everyOwner(m *ast.CallExpr) bool {
	return slices.ContainsFunc(m.Args, func(e ast.Expr) bool {
		sel, ok := ast.Unparen(e).(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "MatchEveryOwner"
	})
}

// controllerOptions reads what WithOptions gets.
func (s *source) controllerOptions(c *controller, m *ast.CallExpr) {
	lit, unread := s.literalOf(c.info, m.Args[0])
	if lit == nil {
		s.found(Look, codeWorkers, s.module.at(m.Fun.(*ast.SelectorExpr).Sel), "%s has options that were not read: %s",
			c.title(), unread)
		return
	}
	for _, name := range []string{"MaxConcurrentReconciles", "RateLimiter"} {
		if kv := field(lit, name); kv != nil {
			s.found(Fine, codeWorkers, s.module.at(kv), "%s sets %s", c.title(), name)
		}
	}
	if kv := field(lit, "NeedLeaderElection"); kv != nil {
		switch value, known := truth(c.info, kv.Value); {
		case known && value:
			c.refused = append(c.refused, "NeedLeaderElection is true")
		case known:
			c.everywhere = true
			c.refused = append(c.refused, everywhere+": it runs on every replica, which Rota leaves as it is")
		default:
			c.refused = append(c.refused, "NeedLeaderElection is decided when the program runs")
		}
	}
}
