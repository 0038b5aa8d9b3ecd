package adopt

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
)

const clientPath = runtimePath + "/pkg/client"

// findReads looks at lists of kinds of which a replica holds a share, and at field indexes.
func (s *source) findReads() {
	s.findLive()
	for _, c := range s.calls {
		if c.test {
			continue
		}
		switch {
		case c.method(clientPath, "Reader", "List") && len(c.Args) >= 2:
			s.list(c)
		case c.method(clientPath, "FieldIndexer", "IndexField") && len(c.Args) == 4:
			if k := kindOf(c.in.TypesInfo, c.Args[1]); s.isSharded(k) {
				s.found(Fine, codeIndex, s.module.at(c.CallExpr), "an index of %s, of which each replica holds a share", k)
			}
		}
	}
}

// list judges a List.
func (s *source) list(c *call) {
	info := c.in.TypesInfo
	sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	if !ok || s.isLive(info, sel.X) || s.hasOption(c, ctrlrtPath, "Live") {
		return
	}
	at := s.module.at(c.CallExpr)
	decl := s.module.enclosing(c.CallExpr)
	runs := s.runsFor(decl, info)
	k := kindOf(info, c.Args[1]).item()
	if !k.known() {
		if decl != nil && len(runs) > 0 {
			s.found(Look, codeListUnknown, at, "a List of a kind that is not in the source, by %s", titles(runs))
		}
		return
	}
	if !s.isSharded(k) || s.hasOption(c, ctrlrtPath, "Share") {
		return
	}
	var own, children, others []*controller
	for _, r := range runs {
		switch {
		case !r.canShard():
			others = append(others, r)
		case r.kind == k:
			own = append(own, r)
		case slices.Contains(r.owns, k):
			children = append(children, r)
		case !slices.Contains(r.watches, k):
			others = append(others, r)
		}
	}
	if len(own) > 0 {
		s.found(Look, codeListOwn, at, "%s lists %s, its own kind", titles(own), k)
		for _, r := range own {
			r.doubt("it lists %s, its own kind (%s:%d)", k, at.File, at.Line)
		}
	}
	if len(children) > 0 {
		s.found(Fine, codeListChildren, at, "%s lists %s, which it owns", titles(children), k)
	}
	by := titles(others)
	if len(runs) == 0 {
		by = "code outside of reconcilers"
	}
	if len(others) == 0 && len(runs) > 0 {
		return
	}
	if s.hasOption(c, clientPath, "MatchingFields", "MatchingFieldsSelector") {
		s.found(Must, codeListIndex, at, "%s lists %s by a field", by, k)
		for _, r := range others {
			r.doubt("it lists %s by a field, of which another controller's replicas hold shares (%s:%d)", k, at.File, at.Line)
		}
		return
	}
	s.found(Look, codeListOther, at, "%s lists %s, of which each replica holds a share", by, k)
}

// hasOption reports whether a call has an argument of such a name or type.
func (s *source) hasOption(c *call, pkg string, names ...string) bool {
	for _, arg := range c.Args[min(2, len(c.Args)):] {
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

// findLive notes where readers go that ask the API server: those of GetAPIReader. It follows them into variables,
// fields and parameters, by what is assigned to these anywhere.
func (s *source) findLive() {
	s.live = map[any]bool{}
	for range 4 { // a reader that is handed on more often than that is not followed
		before := len(s.live)
		for file, p := range s.module.inFile {
			ast.Inspect(file, func(n ast.Node) bool {
				s.flow(p.TypesInfo, n)
				return true
			})
		}
		if len(s.live) == before {
			return
		}
	}
}

// flow notes what one node hands on.
func (s *source) flow(info *types.Info, n ast.Node) {
	mark := func(to types.Object, from ast.Expr) {
		if to != nil && s.isLive(info, from) {
			s.live[variable(to)] = true
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if len(n.Lhs) == len(n.Rhs) {
			for i := range n.Lhs {
				mark(objectOf(info, n.Lhs[i]), n.Rhs[i])
			}
		}
	case *ast.ValueSpec:
		for i, v := range n.Values {
			if i < len(n.Names) {
				mark(info.ObjectOf(n.Names[i]), v)
			}
		}
	case *ast.KeyValueExpr:
		mark(objectOf(info, n.Key), n.Value)
	case *ast.CallExpr:
		fn, ok := objectOf(info, n.Fun).(*types.Func)
		if !ok {
			return
		}
		params := fn.Type().(*types.Signature).Params()
		for i, arg := range n.Args {
			if i < params.Len() {
				mark(params.At(i), arg)
			}
		}
	}
}

// variable is a key for a variable, which is the same for the package as source and as an import.
func variable(obj types.Object) any {
	if obj.Pkg() == nil {
		return obj
	}
	return fmt.Sprintf("%s %s %d", obj.Pkg().Path(), obj.Name(), obj.Pos())
}

// isLive reports whether an expression is a reader that asks the API server.
func (s *source) isLive(info *types.Info, e ast.Expr) bool {
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		obj := objectOf(info, call.Fun)
		return obj != nil && obj.Name() == "GetAPIReader"
	}
	obj := objectOf(info, e)
	return obj != nil && s.live[variable(obj)]
}
