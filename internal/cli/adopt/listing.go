package adopt

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// listing is a List, or a call that hands its list on to one.
type listing struct {
	*call
	list ast.Expr
	// reader is what lists, if that is known, and ctx its context.
	reader, ctx given
	// options are all calls on the way, whose arguments may have options.
	options []*call
	key     string
}

// listings returns the module's lists. Any function is one that takes a client.ObjectList and is named so, but those
// of the module itself, in which the list is. A list that a function gets as a parameter is where it is called.
func (s *source) listings() (out []listing) {
	for _, c := range s.calls {
		if c.test {
			continue
		}
		info := c.in.TypesInfo
		obj := objectOf(info, c.Fun)
		if obj == nil || !strings.Contains(strings.ToLower(obj.Name()), "list") {
			continue
		}
		if fn, ok := obj.(*types.Func); ok && len(s.reach.keysOf(fn)) > 0 {
			continue
		}
		sig, ok := obj.Type().Underlying().(*types.Signature)
		if !ok {
			continue
		}
		for i := range min(sig.Params().Len(), len(c.Args)) {
			if !isNamed(sig.Params().At(i).Type(), clientPath, "ObjectList") {
				continue
			}
			l := listing{call: c, list: c.Args[i], options: []*call{c}, ctx: given{Expr: c.Args[0], info: info}}
			if sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr); ok {
				l.reader = given{Expr: sel.X, info: info}
			}
			out = append(out, s.callers(l, 0)...)
			break
		}
	}
	return out
}

// callers returns where a list comes from that its function gets as a parameter: all calls, or the list itself if
// those are not known.
func (s *source) callers(l listing, depth int) []listing {
	l.key = s.keyOf(l.CallExpr)
	f := s.reach.functions[l.key]
	info := l.in.TypesInfo
	if f == nil || depth > 3 || s.values.named[l.key] || s.kindOf(info, l.list, nil).known() {
		return []listing{l}
	}
	v, ok := objectOf(info, addressed(l.list)).(*types.Var)
	if !ok || !slices.Contains(f.params(), types.Object(v)) {
		return []listing{l}
	}
	list := s.values.of[s.module.variableKey(v)]
	var out []listing
	for _, from := range list {
		if from.call == nil {
			return []listing{l}
		}
		out = append(out, s.callers(listing{call: from.call, list: from.Expr,
			options: append(slices.Clone(l.options), from.call),
			reader:  f.argument(l.reader, from.call), ctx: f.argument(l.ctx, from.call)}, depth+1)...)
	}
	if len(out) == 0 {
		return []listing{l}
	}
	return out
}

// roleIn returns for what of a controller the list is. By the context of a handler the controller is known: a list with
// another one is any code's.
func (s *source) roleIn(l listing, c *controller) role {
	if r := c.reached[l.key]; r != mapping || !s.isDetached(l.ctx, 0) {
		return r
	}
	return choosing
}

// isDetached reports whether a context may come from context.Background or context.TODO.
func (s *source) isDetached(v given, depth int) bool {
	if v.Expr == nil || depth > 4 {
		return false
	}
	switch e := ast.Unparen(v.Expr).(type) {
	case *ast.CallExpr:
		c, ok := calleeIn(v.info, e.Fun)
		if !ok || c.pkg != "context" {
			return false
		}
		return len(e.Args) == 0 || s.isDetached(given{Expr: e.Args[0], info: v.info}, depth+1)
	case *ast.Ident, *ast.SelectorExpr:
		if obj, ok := objectOf(v.info, e).(*types.Var); ok {
			return slices.ContainsFunc(s.values.of[s.module.variableKey(obj)], func(v given) bool {
				return s.isDetached(v, depth+1)
			})
		}
	}
	return false
}

// has reports whether the list has an option of such a name or type.
func (l listing) has(pkg string, names ...string) bool {
	return slices.ContainsFunc(l.options, func(c *call) bool { return hasOption(c, pkg, names...) })
}

// byField reports whether a list is by a field: an index, or what the API server knows of fields.
func (s *source) byField(l listing) bool {
	if l.has(clientPath, "MatchingFields", "MatchingFieldsSelector") {
		return true
	}
	for _, c := range l.options {
		for _, arg := range c.Args {
			if !isNamed(c.in.TypesInfo.TypeOf(arg), clientPath, "ListOptions") {
				continue
			}
			if lit, _ := s.literalOf(c.in.TypesInfo, arg); field(lit, "FieldSelector") != nil {
				return true
			}
		}
	}
	return false
}

// hasOption reports whether a call has an argument of such a name or type.
func hasOption(c *call, pkg string, names ...string) bool {
	for _, arg := range c.Args {
		if obj := objectOf(c.in.TypesInfo, arg); obj != nil && obj.Pkg() != nil && obj.Pkg().Path() == pkg &&
			slices.Contains(names, obj.Name()) {
			return true
		}
		for _, name := range names {
			if t := c.in.TypesInfo.TypeOf(arg); t != nil && isNamed(t, pkg, name) {
				return true
			}
		}
	}
	return false
}
