package adopt

import (
	"go/ast"
	"go/types"
	"strings"
)

// findState looks at what reconcilers keep in memory, and at what they leave running. It is best effort: what is behind
// fields of other types is not looked at.
func (s *source) findState() {
	s.runsFor(nil, nil)
	seen := map[string]bool{}
	for _, c := range s.controllers {
		if c.reconciler != nil && !seen[c.reconciler.Obj().Name()+c.reconciler.Obj().Pkg().Path()] {
			seen[c.reconciler.Obj().Name()+c.reconciler.Obj().Pkg().Path()] = true
			s.fields(c)
		}
	}
	for key, decl := range s.reach.decls {
		if s.module.isTest(decl) {
			continue
		}
		runs := s.runsFor(decl, s.reach.infos[key])
		if len(runs) > 0 {
			s.body(decl, s.reach.infos[key], runs)
		}
	}
}

// fields looks at the fields of a reconciler.
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
		if what := memory(f.Type()); what != "" {
			s.found(Look, codeMemory, at, "%s keeps %s in memory: %s", c.title(), what, f.Name())
			c.doubt("it keeps %s in memory (%s)", what, f.Name())
		}
	}
}

// memory says what of a type can hold something about objects.
func memory(t types.Type) string {
	switch u := types.Unalias(t).(type) {
	case *types.Pointer:
		return memory(u.Elem())
	case *types.Named:
		if u.Obj().Pkg() != nil && u.Obj().Pkg().Path() == "sync" && u.Obj().Name() == "Map" {
			return "a sync.Map"
		}
		if u.Obj().Pkg() != nil && strings.HasPrefix(u.Obj().Pkg().Path(), "golang.org/x/time/rate") {
			return "a rate limiter"
		}
	case *types.Map:
		return "a map"
	case *types.Chan:
		return "a channel"
	}
	return ""
}

// body looks at a function that runs for controllers' objects: goroutines, contexts and variables of the package.
func (s *source) body(decl *ast.FuncDecl, info *types.Info, runs []*controller) {
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if s.waits(decl, info) {
				return true
			}
			at := s.module.at(n)
			s.found(Look, codeGoroutine, at, "%s starts a goroutine", titles(runs))
			for _, c := range runs {
				c.doubt("it leaves a goroutine running (%s:%d)", at.File, at.Line)
			}
		case *ast.CallExpr:
			s.background(n, info, runs)
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if index, ok := l.(*ast.IndexExpr); ok {
					s.global(index.X, info, runs)
				}
			}
		}
		return true
	})
}

// waits reports whether a function waits for what it starts, by a WaitGroup, an errgroup or a channel.
func (s *source) waits(decl *ast.FuncDecl, info *types.Info) bool {
	found := false
	ast.Inspect(decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if obj := objectOf(info, n.Fun); obj != nil && obj.Name() == "Wait" {
				found = true
			}
		case *ast.GoStmt:
			return false // what the goroutine waits for does not count
		case *ast.UnaryExpr:
			if n.Op.String() == "<-" {
				found = true
			}
		}
		return !found
	})
	return found
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
		s.found(Look, codeContext, s.module.at(call), "%s writes with context.%s", titles(runs), made.Name())
	}
}

// global looks for maps of a package that are filled.
func (s *source) global(e ast.Expr, info *types.Info, runs []*controller) {
	v, ok := objectOf(info, e).(*types.Var)
	if !ok || v.IsField() || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() {
		return
	}
	if _, ok := v.Type().Underlying().(*types.Map); ok {
		s.found(Look, codeMemory, s.module.at(e), "%s fills a variable of the package: %s", titles(runs), v.Name())
		for _, c := range runs {
			c.doubt("it keeps a map in memory (%s)", v.Name())
		}
	}
}

// builders returns the functions that build controllers, by full name.
func (s *source) builders() map[string]bool {
	s.runsFor(nil, nil)
	builds := map[string]bool{}
	for _, c := range s.controllers {
		if decl := s.module.enclosing(c.CallExpr); decl != nil {
			if fn, ok := c.info.Defs[decl.Name].(*types.Func); ok {
				builds[fn.FullName()] = true
			}
		}
	}
	return builds
}

// findLate looks for goroutines that build controllers, such as once there are certificates.
func (s *source) findLate() {
	builds := s.builders()
	for file, p := range s.module.inFile {
		if s.module.isTest(file) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			start, ok := n.(*ast.GoStmt)
			if !ok {
				return true
			}
			for name := range s.reach.from(functionsIn(p.TypesInfo, start)) {
				if builds[name] {
					s.found(Must, codeLate, s.module.at(start), "a goroutine builds controllers")
					break
				}
			}
			return true
		})
	}
}

// findTests looks for tests that build controllers with a stock manager: sharded ones need a manager of package ctrlrt.
func (s *source) findTests() {
	builds := s.builders()
	seen := map[*ast.File]bool{}
	for _, c := range s.calls {
		file := s.module.file(c.CallExpr)
		if !c.test || seen[file] || !c.is(runtimePath, "NewManager") && !c.is(managerPath, "New") {
			continue
		}
		seen[file] = true
		for name := range s.reach.from(functionsIn(c.in.TypesInfo, file)) {
			if builds[name] {
				s.found(Look, codeTests, s.module.at(c.CallExpr), "a test builds controllers with a stock manager")
				break
			}
		}
	}
}
