package adopt

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

func isManager(c callee) bool {
	return c.recv == "Manager" && (c.pkg == managerPath || c.pkg == ctrlrtPath)
}

// reportCall reports problems of a single call.
func (s *scan) reportCall(call ssa.CallInstruction) {
	c := call.Common()
	name, args, pos := calleeOf(c), argumentsOf(c), s.position(call)
	switch {
	case isManager(name) && name.name == "Add":
		s.runnable(pos, args[0])
	case isManager(name) && name.name == "Elected":
		if n := s.find(Must, "Elected", pos, "this waits for the lead"); s.keepsFiles {
			n.Instead = "if it serves files that reconciles write, keep leader election, or a store that all replicas share: " +
				"no replica has the files of all; else " + n.Instead
		}
	case isManager(name) && name.name == "AddReadyzCheck":
		if text(args[0]) == "rota" {
			s.find(Must, "ReadinessName", pos, `a readiness check is named "rota"`)
		}
	case name.method(runtimePath+"/pkg/cache", "Informers", "GetInformer"):
		if k := s.kindOf(args[1]); s.isSharded(k) {
			s.find(Must, "CacheInformer", pos, "an informer of %s from a manager's cache", k)
		}
	case name.pkg == clientPath && slices.Contains([]string{"Writer", "SubResourceWriter", "StatusWriter"}, name.recv):
		if runs := s.runs(call.Parent()); len(runs) > 0 && s.detached(args[0]) {
			s.find(Look, "Context", pos, "%s: it writes with a context that does not end with the reconcile", titles(runs))
		}
	default:
		s.clientCall(call, name, pos)
	}
}

// clientCall reports clients, informers, queues and leader elections that do not come from a manager. Calls of
// generated code are reported at their callers.
func (s *scan) clientCall(call ssa.CallInstruction, name callee, pos token.Pos) {
	value := call.Value()
	switch {
	case name.recv != "" || s.isGenerated(pos):
	case name.is(clientGo+"/tools/leaderelection", "RunOrDie", "NewLeaderElector"),
		strings.HasPrefix(name.pkg, "github.com/operator-framework/operator-lib/leader") && name.name == "Become":
		s.find(Must, "OwnLeaderElection", pos, "%s", name.short())
	case strings.HasPrefix(name.name, "NewSharedInformerFactory") && strings.Contains(name.pkg, "informers"),
		name.is(clientGo+"/informers", "NewFilteredSharedInformerFactory"),
		name.is(clientGo+"/tools/cache", "NewSharedIndexInformer", "NewSharedInformer", "NewInformer",
			"NewIndexerInformer", "NewReflector", "NewNamedReflector", "NewInformerWithOptions"),
		strings.HasPrefix(name.name, "New") && value != nil &&
			isNamed(value.Type(), clientGo+"/tools/cache", "SharedIndexInformer"):
		s.find(Look, "ClientInformer", pos, "an informer: %s", name.short())
	case name.pkg == clientGo+"/util/workqueue" && strings.HasPrefix(name.name, "New") &&
		strings.Contains(name.name, "Queue"):
		s.find(Look, "OwnQueue", pos, "a work queue: %s", name.short())
	case makesClient(name, call.Common()) && !s.guarded(call.Common().Args[0]):
		s.find(Look, "OwnClient", pos, "a separate client: %s", name.short())
	}
}

func (s *scan) isGenerated(pos token.Pos) bool {
	f, _ := s.fileOf(pos)
	return f != nil && ast.IsGenerated(f)
}

// fileOf returns the file of a position, and the types of its package.
func (s *scan) fileOf(pos token.Pos) (*ast.File, *types.Info) {
	for _, p := range s.own {
		for _, f := range p.files {
			if f.FileStart <= pos && pos < f.FileEnd {
				return f, p.info
			}
		}
	}
	return nil, nil
}

// makesClient reports whether a call makes a client from a rest.Config, except for discovery, which does not write.
func makesClient(name callee, c *ssa.CallCommon) bool {
	if len(c.Args) == 0 || !isNamed(c.Args[0].Type(), clientGo+"/rest", "Config") ||
		strings.HasPrefix(name.pkg, clientGo+"/discovery") {
		return false
	}
	return name.is(clientPath, "New", "NewWithWatch") || strings.HasPrefix(name.name, "NewForConfig")
}

// guarded reports whether a configuration comes from a manager, or is wrapped by the rota.
func (s *scan) guarded(config ssa.Value) bool {
	return s.comesFrom(config, func(c *ssa.Call) bool {
		name := calleeOf(&c.Call)
		return name.recv != "" && name.name == "GetConfig" || name.name == "WrapConfig"
	})
}

// runnable checks an argument of a manager's Add.
func (s *scan) runnable(pos token.Pos, v ssa.Value) {
	if m, ok := v.(*ssa.MakeInterface); ok {
		v = m.X
	}
	what := types.TypeString(v.Type(), (*types.Package).Name)
	switch leads, known := s.needsLeader(v.Type()); {
	case strings.Contains(what, "controller."), known && !leads: // a controller is reported where it is built
	case known:
		s.find(Must, "Runnable", pos, "%s needs a leader", what)
	default:
		s.find(Look, "Runnable", pos, "%s: whether it needs a leader is decided when the program runs", what).Why =
			"what needs a leader is refused at the start without leader election"
	}
}

// needsLeader reports whether a runnable waits for the leader. known is false if its method cannot be read.
func (s *scan) needsLeader(t types.Type) (leads, known bool) {
	set := types.NewMethodSet(t)
	if set.Lookup(nil, "GetCache") != nil || set.Lookup(nil, "WaitForCacheSync") != nil {
		return false, true // caches and clusters run on every replica
	}
	if set.Lookup(nil, "NeedLeaderElection") == nil {
		return true, !types.IsInterface(t)
	}
	f := s.method(t, "NeedLeaderElection")
	if f == nil || len(f.Blocks) != 1 {
		return false, false
	}
	ret, ok := f.Blocks[0].Instrs[len(f.Blocks[0].Instrs)-1].(*ssa.Return)
	if !ok {
		return false, false
	}
	if c, ok := ret.Results[0].(*ssa.Const); ok {
		return constant.BoolVal(c.Value), true
	}
	return false, false
}

// reportSource reports a raw source.
func (s *scan) reportSource(c *controller, pos token.Pos, v ssa.Value) {
	for _, from := range s.makers(v) {
		name := callee{}
		call, _ := from.(*ssa.Call)
		if call != nil {
			name = calleeOf(&call.Call)
		}
		switch ofSource := name.pkg == runtimePath+"/pkg/source"; {
		case ofSource && strings.HasSuffix(name.name, "Channel"):
			s.find(Look, "RawSource", pos, "%s has a channel as a source", c.title())
		case !ofSource || !strings.HasSuffix(name.name, "Kind"):
			s.find(Look, "RawSource", pos, "%s has a custom source", c.title())
		default:
			f := s.find(Look, "RawSource", pos, "%s has %s of a cache as a source", c.title(), s.kindOf(call.Call.Args[1]))
			f.Why = "of a sharded kind the manager's cache holds a share, so the start is refused"
			f.Instead = "the cache of mgr.Whole(), if it is of a sharded kind; nothing, if the cache is for another cluster"
		}
	}
}

// isMaker reports whether it is a function that makes managers or builders. Calls of it are in the report.
func isMaker(c callee) bool {
	return c.is(runtimePath, "NewManager", "NewControllerManagedBy") || c.is(managerPath, "New") ||
		c.is(builderPath, "ControllerManagedBy", "TypedControllerManagedBy") ||
		c.is(runtimePath+"/pkg/controller", "New", "NewUnmanaged", "NewTyped", "NewTypedUnmanaged") ||
		c.is(ctrlrtPath, "NewManager", "NewControllerManagedBy", "NewDutyControllerManagedBy")
}

// findHidden reports managers and controllers whose constructors are used as values.
func (s *scan) findHidden() {
	for i := range s.each() {
		for _, op := range i.Operands(nil) {
			c := valueName(*op)
			if call, ok := i.(ssa.CallInstruction); !isMaker(c) || ok && call.Common().Value == *op {
				continue
			}
			level := Must
			if c.pkg == ctrlrtPath {
				level = Look
			}
			s.find(level, "NotSeen", i.Pos(), "%s is used as a value: what it makes is not seen", c.short())
		}
	}
}
