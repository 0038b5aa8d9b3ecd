package adopt

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

const sourcePath = runtimePath + "/pkg/source"

// rawSource is what a WatchesRawSource gets.
type rawSource struct {
	at place
	// channel: events come from this process alone. cache is where a source.Kind has its objects from, and kind which.
	channel bool
	cache   ast.Expr
	kind    kind
}

// rawSource reads a WatchesRawSource.
func (s *source) rawSource(c *controller, m *ast.CallExpr) {
	raw := rawSource{at: s.module.at(m.Fun.(*ast.SelectorExpr).Sel)}
	ast.Inspect(m, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			return n != m.Fun // the calls of the builder before
		case *ast.CallExpr:
			obj := objectOf(c.info, n.Fun)
			if obj == nil || obj.Pkg() == nil || obj.Pkg().Path() != sourcePath {
				return true
			}
			switch {
			case strings.HasSuffix(obj.Name(), "Channel"):
				raw.channel = true
			case strings.HasSuffix(obj.Name(), "Kind") && len(n.Args) > 1:
				raw.cache, raw.kind = n.Args[0], s.kindOf(c.info, n.Args[1], nil)
			}
		}
		return true
	})
	c.sources = append(c.sources, raw)
}

// tellSources says what is to be said of raw sources, once it is known what is sharded.
func (s *source) tellSources() {
	for _, c := range s.controllers {
		for _, raw := range c.sources {
			s.tellSource(c, raw)
		}
	}
}

func (s *source) tellSource(c *controller, raw rawSource) {
	switch {
	case raw.channel:
		s.found(Look, codeRawSource, raw.at, "%s has a channel as a source", c.title())
	case raw.cache == nil:
		s.found(Look, codeRawSource, raw.at, "%s has a source of its own", c.title())
	case !raw.kind.known():
		f := s.found(Look, codeRawSource, raw.at, "%s has a cache's objects of %s as a source", c.title(), nameOr(raw.kind))
		f.Why, f.Instead = "of a sharded kind the manager's cache holds a share, so the start is refused",
			"the cache of mgr.Whole(), if it is of a sharded kind"
	case s.isSharded(raw.kind) && s.ofManagerCache(given{Expr: raw.cache, info: c.info}):
		s.found(Must, codeInformer, raw.at, "%s has %s of the manager's cache as a source", c.title(), raw.kind).Why =
			"the manager's cache holds a share of a sharded kind, so the start is refused"
	case s.isSharded(raw.kind) && !s.isWholeCache(given{Expr: raw.cache, info: c.info}):
		f := s.found(Look, codeRawSource, raw.at, "%s has %s of a cache as a source", c.title(), raw.kind)
		f.Why, f.Instead = "if it is the manager's cache, that holds a share, and the start is refused",
			"the cache of mgr.Whole(); nothing, if it is that of another cluster"
	default:
		f := s.found(Fine, codeRawSource, raw.at, "%s has %s of a cache as a source", c.title(), raw.kind)
		f.Why, f.Instead = "every replica gets its events, and leaves out requests for objects of others", ""
	}
}

// cacheOf returns the manager, or the cluster, of x.GetCache(), also behind local variables.
func (s *source) cacheOf(v given) (of given, ok bool) {
	for range 4 {
		if call, isCall := ast.Unparen(v.Expr).(*ast.CallExpr); isCall {
			sel, isSel := ast.Unparen(call.Fun).(*ast.SelectorExpr)
			if !isSel || sel.Sel.Name != "GetCache" {
				return given{}, false
			}
			return given{Expr: sel.X, info: v.info}, true
		}
		obj, isVar := objectOf(v.info, v.Expr).(*types.Var)
		if !isVar {
			return given{}, false
		}
		list := s.values.of[s.module.variableKey(obj)]
		if len(list) != 1 {
			return given{}, false
		}
		v = list[0]
	}
	return given{}, false
}

// ofManagerCache reports whether a cache is surely that of a manager which is not one of mgr.Whole().
func (s *source) ofManagerCache(v given) bool {
	of, ok := s.cacheOf(v)
	if !ok || s.isWhole(of) {
		return false
	}
	t := of.info.TypeOf(of.Expr)
	return t != nil && (isNamed(t, managerPath, "Manager") || isNamed(t, ctrlrtPath, "Manager"))
}

// isWholeCache reports whether a cache is that of a mgr.Whole().
func (s *source) isWholeCache(v given) bool {
	of, ok := s.cacheOf(v)
	return ok && s.isWhole(of)
}

// isWhole reports whether all that a manager may be comes from mgr.Whole().
func (s *source) isWhole(v given) bool { return s.comesFromWhole(v, 0) }

func (s *source) comesFromWhole(v given, depth int) bool {
	if depth > 4 {
		return false
	}
	switch e := ast.Unparen(v.Expr).(type) {
	case *ast.CallExpr:
		c, ok := calleeIn(v.info, e.Fun)
		return ok && c == callee{pkg: ctrlrtPath, recv: "Manager", name: "Whole"}
	case *ast.Ident, *ast.SelectorExpr:
		obj, ok := objectOf(v.info, e).(*types.Var)
		if !ok {
			return false
		}
		list := s.values.of[s.module.variableKey(obj)]
		return len(list) > 0 && !slices.ContainsFunc(list, func(v given) bool { return !s.comesFromWhole(v, depth+1) })
	}
	return false
}
