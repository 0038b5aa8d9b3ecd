package adopt

import (
	"go/ast"
	"go/types"
	"strings"
)

// findClients looks at clients, informers, queues and leader elections that do not come from a manager.
func (s *source) findClients() {
	for _, c := range s.calls {
		if c.test || ast.IsGenerated(s.module.file(c.CallExpr)) {
			continue // what is generated is looked at where it is called
		}
		at := s.module.at(c.CallExpr)
		name := c.name
		switch {
		case c.is(clientGo+"/tools/leaderelection", "RunOrDie", "NewLeaderElector"):
			s.found(Must, codeElectionOwn, at, "leaderelection.%s", name)
		case strings.HasPrefix(c.pkg, "github.com/operator-framework/operator-lib/leader") && name == "Become":
			s.found(Must, codeElectionOwn, at, "leader.Become")
		case c.is(clientGo+"/informers", "NewSharedInformerFactory", "NewSharedInformerFactoryWithOptions",
			"NewFilteredSharedInformerFactory"), generatedFactory(c):
			s.found(Look, codeClientInformer, at, "a factory of informers: %s.%s", pkgOf(c.callee), name)
		case c.is(clientGo+"/tools/cache", "NewSharedIndexInformer", "NewSharedInformer", "NewInformer", "NewIndexerInformer",
			"NewReflector", "NewNamedReflector", "NewInformerWithOptions"):
			s.found(Look, codeClientInformer, at, "an informer: cache.%s", name)
		case c.recv == "" && strings.HasPrefix(name, "New") && // one that informer-gen has written
			isNamed(c.in.TypesInfo.TypeOf(c.CallExpr), clientGo+"/tools/cache", "SharedIndexInformer"):
			s.found(Look, codeClientInformer, at, "an informer: %s.%s", pkgOf(c.callee), name)
		case c.pkg == clientGo+"/util/workqueue" && strings.HasPrefix(name, "New") && strings.Contains(name, "Queue"):
			s.found(Look, codeQueue, at, "a work queue: workqueue.%s", name)
		case s.makesClient(c) && !s.ofManager(c):
			s.found(Look, codeClient, at, "a client of its own: %s.%s", pkgOf(c.callee), name)
		}
	}
}

func pkgOf(c callee) string { return c.pkg[strings.LastIndex(c.pkg, "/")+1:] }

// generatedFactory reports whether a call makes a factory that client-gen has written.
func generatedFactory(c *call) bool {
	return c.recv == "" && strings.HasPrefix(c.name, "NewSharedInformerFactory") && strings.Contains(c.pkg, "informers")
}

// makesClient reports whether a call makes a client from a rest.Config.
func (s *source) makesClient(c *call) bool {
	if c.recv != "" || len(c.Args) == 0 || !isNamed(c.in.TypesInfo.TypeOf(c.Args[0]), clientGo+"/rest", "Config") {
		return false
	}
	switch {
	case c.pkg == clientPath:
		return c.name == "New" || c.name == "NewWithWatch"
	case strings.HasPrefix(c.pkg, clientGo+"/discovery"):
		return false // it writes nothing
	case strings.HasPrefix(c.name, "NewForConfig"):
		return true
	}
	return false
}

// ofManager reports whether a client is made of a manager's configuration, which is wrapped, or of one that the rota
// wraps.
func (s *source) ofManager(c *call) bool {
	var wrapped func(e ast.Expr, depth int) bool
	wrapped = func(e ast.Expr, depth int) bool {
		if depth > 3 {
			return false
		}
		if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
			obj := objectOf(c.in.TypesInfo, call.Fun)
			if obj == nil {
				return false
			}
			switch obj.Name() {
			case "GetConfig":
				fn, ok := obj.(*types.Func)
				return ok && fn.Type().(*types.Signature).Recv() != nil
			case "WrapConfig":
				return true
			case "CopyConfig", "AddUserAgent":
				return len(call.Args) > 0 && wrapped(call.Args[0], depth+1)
			}
			return false
		}
		id, ok := ast.Unparen(e).(*ast.Ident)
		if !ok {
			return false
		}
		obj, fn := c.in.TypesInfo.ObjectOf(id), s.module.enclosing(e)
		if fn == nil {
			return false
		}
		found := false
		ast.Inspect(fn, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) == len(a.Rhs) {
				for i := range a.Lhs {
					if id, ok := a.Lhs[i].(*ast.Ident); ok && c.in.TypesInfo.ObjectOf(id) == obj && wrapped(a.Rhs[i], depth+1) {
						found = true
					}
				}
			}
			return true
		})
		return found
	}
	return wrapped(c.Args[0], 0)
}
