package adopt

import (
	"go/ast"
	"go/types"
)

const managerPath = runtimePath + "/pkg/manager"

// findRunnables looks at what a manager runs besides controllers, and what waits for its leader.
func (s *source) findRunnables() {
	for _, c := range s.calls {
		if c.test {
			continue
		}
		at := s.module.at(c.CallExpr)
		switch {
		case c.method(managerPath, "Manager", "Add") && len(c.Args) == 1, c.method(ctrlrtPath, "Manager", "Add"):
			s.runnable(c)
		case c.method(managerPath, "Manager", "Elected"):
			s.found(Must, codeElected, at, "this waits for the lead")
		case c.method(managerPath, "Manager", "AddReadyzCheck") && len(c.Args) == 2:
			if name := text(c.in.TypesInfo, c.Args[0]); name == "rota" {
				s.found(Must, codeReadyName, at, `a readiness check is named "rota"`)
			}
		case c.method(runtimePath+"/pkg/cache", "Informers", "GetInformer") && len(c.Args) >= 2:
			if k := s.kindOf(c.in.TypesInfo, c.Args[1], nil); s.isSharded(k) {
				s.found(Must, codeInformer, at, "an informer of %s from a manager's cache", k)
			}
		case c.is(runtimePath, "NewWebhookManagedBy"), c.is(builderPath, "WebhookManagedBy"):
			s.found(Fine, codeWebhook, at, "a webhook")
		}
	}
	s.conversions()
}

// runnable judges an Add.
func (s *source) runnable(c *call) {
	info := c.in.TypesInfo
	at := s.module.at(c.CallExpr)
	t := info.TypeOf(c.Args[0])
	what := types.ExprString(c.Args[0])
	if len(what) > 40 {
		what = types.TypeString(t, func(p *types.Package) string { return p.Name() })
	}
	switch leads, known := s.needsLeader(t); {
	case s.isController(c.Args[0], info):
		// What makes it is in the report.
	case known && !leads:
		s.found(Fine, codeRunnableAll, at, "%s runs on every replica", what)
	case known:
		s.found(Must, codeRunnable, at, "%s needs a leader", what)
	default:
		f := s.found(Look, codeRunnable, at, "%s: whether it needs a leader is decided when the program runs", what)
		f.Why = "what needs a leader is refused at the start without leader election"
	}
}

// isController reports whether a value is a controller that was made with package controller.
func (s *source) isController(e ast.Expr, info *types.Info) bool {
	named := namedOf(info.TypeOf(e))
	return named != nil && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == runtimePath+"/pkg/controller"
}

// needsLeader says whether a runnable of a type waits for the leader. known is false if its method cannot be read.
func (s *source) needsLeader(t types.Type) (leads, known bool) {
	if t == nil {
		return false, false
	}
	set := types.NewMethodSet(t)
	if set.Lookup(nil, "GetCache") != nil || set.Lookup(nil, "WaitForCacheSync") != nil {
		return false, true // caches and clusters run on every replica
	}
	m := set.Lookup(nil, "NeedLeaderElection")
	if m == nil {
		return true, !types.IsInterface(t)
	}
	fn, ok := m.Obj().(*types.Func)
	if !ok {
		return false, false
	}
	f := s.reach.functions[fn.Origin().FullName()]
	if f == nil || len(f.body.List) != 1 {
		return false, false
	}
	ret, ok := f.body.List[0].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 {
		return false, false
	}
	return truth(f.info, ret.Results[0])
}

// conversions looks for kinds that a conversion webhook converts.
func (s *source) conversions() {
	for _, p := range s.module.packages {
		for _, f := range p.Syntax {
			for _, d := range f.Decls {
				decl, ok := d.(*ast.FuncDecl)
				if !ok || decl.Recv == nil || decl.Name.Name != "Hub" || len(decl.Recv.List) != 1 {
					continue
				}
				named := namedOf(p.TypesInfo.TypeOf(decl.Recv.List[0].Type))
				if named == nil {
					continue
				}
				if k := (kind{p.PkgPath, named.Obj().Name()}); s.isSharded(k) {
					s.found(Look, codeConversion, s.module.at(decl), "%s is the hub of a conversion webhook", k)
				}
			}
		}
	}
}
