package adopt

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"
)

// findState looks at what controllers keep in memory, and at what they leave running.
func (s *source) findState() {
	seen := map[string]bool{}
	for _, c := range s.controllers {
		if c.reconciler != nil && !seen[c.reconciler.Obj().Name()+c.reconciler.Obj().Pkg().Path()] {
			seen[c.reconciler.Obj().Name()+c.reconciler.Obj().Pkg().Path()] = true
			s.fields(c)
		}
	}
	s.findMemory()
	s.findGoroutines()
	for _, key := range s.reach.sorted() {
		if runs := s.runsFor(key); len(runs) > 0 {
			f := s.reach.functions[key]
			s.reach.inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					s.background(call, f.info, runs)
				}
				return true
			})
		}
	}
}

// noted are things that speak against sharding controllers, one doubt for all of a sort.
type noted map[*controller][]string

func (n noted) add(cs []*controller, format string, args ...any) {
	for _, c := range cs {
		n[c] = append(n[c], fmt.Sprintf(format, args...))
	}
}

// doubt adds the doubts. The findings have all places, a doubt has three.
func (n noted) doubt(about string) {
	for c, list := range n {
		if len(list) > 3 {
			list = append(list[:3], "…")
		}
		c.doubt("%s", about+strings.Join(list, ", "))
	}
}

// fields looks at the fields of a reconciler whose types keep something, however they are used.
func (s *source) fields(c *controller) {
	st, ok := c.reconciler.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i := range st.NumFields() {
		f := st.Field(i)
		pos := s.module.fset.Position(f.Pos())
		at := place{s.module.rel(pos.Filename), pos.Line}
		if strings.HasPrefix(at.File, "..") {
			continue // of a dependency
		}
		if strings.Contains(types.TypeString(f.Type(), nil), "Expectations") {
			s.found(Look, codeExpectations, at, "%s has expectations in %s", c.title(), f.Name())
			c.doubt("it counts events (%s)", f.Name())
			continue
		}
		if named := namedOf(f.Type()); named != nil && named.Obj().Pkg() != nil &&
			strings.HasPrefix(named.Obj().Pkg().Path(), "golang.org/x/time/rate") {
			s.found(Look, codeMemory, at, "%s keeps a rate limiter in memory: %s", c.title(), f.Name())
			c.doubt("it keeps a rate limiter in memory (%s)", f.Name())
		}
	}
}

// background looks for writes with a context that is not the reconcile's.
func (s *source) background(call *ast.CallExpr, info *types.Info, runs []*controller) {
	obj := objectOf(info, call.Fun)
	if obj == nil || len(call.Args) == 0 {
		return
	}
	c := calleeOf(obj)
	if c.pkg != clientPath || c.recv != "Writer" && c.recv != "SubResourceWriter" && c.recv != "StatusWriter" {
		return
	}
	inner, ok := ast.Unparen(call.Args[0]).(*ast.CallExpr)
	if !ok {
		return
	}
	made := objectOf(info, inner.Fun)
	if made != nil && made.Pkg() != nil && made.Pkg().Path() == "context" &&
		(made.Name() == "TODO" || made.Name() == "Background") {
		s.found(Look, codeContext, s.module.at(call), "%s with context.%s", does(runs, "write"), made.Name())
	}
}
