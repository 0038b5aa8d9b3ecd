package adopt

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// findMemory finds what controllers' functions keep in memory: writes to the reconciler's fields, package variables,
// and variables captured by a constructor's closure.
func (s *scan) findMemory() {
	kept, shown := reasons{}, reasons{}
	used := s.usedByWebhooks()
	for _, f := range s.functions {
		runs := s.runs(f)
		if len(runs) == 0 {
			continue
		}
		for i := range instructions(f) {
			target, behind := written(i)
			if target == nil || !i.Pos().IsValid() || inObject(target) {
				continue
			}
			var by []*controller
			for _, c := range runs {
				h := holder{s, c, map[ssa.Value]bool{}}
				if h.holds(target, behind) {
					by = append(by, c)
				}
			}
			if len(by) == 0 {
				continue
			}
			what := s.nameOfPlace(target)
			at := fmt.Sprintf("%s (%s)", what, s.where(i.Pos()))
			if !used[s.place(container(target))] {
				s.find(Look, "Memory", i.Pos(), "%s: it writes %s, which stays in memory", titles(by), what)
				kept.add(by, at)
				continue
			}
			n := s.find(Look, "Memory", i.Pos(), "%s: it writes %s, which stays in memory, and webhooks use it",
				titles(by), what)
			n.Why = "webhooks run on every replica: sharded, each one knows of its share, and as a duty one replica knows"
			n.Instead = "ctrl.NewControllerManagedBy(mgr.Whole()) with NeedLeaderElection: false: every replica has all of it"
			shown.add(by, at)
		}
	}
	shown.doubt("webhooks of every replica use what it keeps in memory: ")
	kept.doubt("it keeps something in memory: ")
}

// usedByWebhooks returns the variables and fields that webhooks and HTTP handlers use.
func (s *scan) usedByWebhooks() map[any]bool {
	var roots []*ssa.Function
	methods := []string{"Default", "ValidateCreate", "ValidateUpdate", "ValidateDelete", "ServeHTTP"}
	for _, f := range s.functions {
		params := f.Signature.Params()
		handles := f.Name() == "Handle" && params.Len() == 2 &&
			isNamed(params.At(1).Type(), runtimePath+"/pkg/webhook/admission", "Request")
		if f.Signature.Recv() != nil && (handles || slices.Contains(methods, f.Name())) {
			roots = append(roots, f)
		}
	}
	used := map[any]bool{}
	for f := range s.reach(roots) {
		for i := range instructions(f) {
			for _, op := range i.Operands(nil) {
				if at := s.place(*op); at != nil {
					used[at] = true
				}
			}
		}
	}
	return used
}

// container returns the address of the variable or field that contains a value.
func container(v ssa.Value) ssa.Value {
	for {
		switch x := v.(type) {
		case *ssa.UnOp:
			v = x.X
		case *ssa.IndexAddr:
			v = x.X
		case *ssa.MakeInterface:
			v = x.X
		case *ssa.Lookup:
			v = x.X
		default:
			return v
		}
	}
}

// reasons maps controllers to the places that prevent sharding.
type reasons map[*controller][]string

func (r reasons) add(cs []*controller, what string) {
	for _, c := range cs {
		if !slices.Contains(r[c], what) {
			r[c] = append(r[c], what)
		}
	}
}

// doubt adds one doubt for all places, and lists three of them. The findings have all.
func (r reasons) doubt(about string) {
	for c, list := range r {
		if len(list) > 3 {
			list = append(list[:3:3], "…")
		}
		c.doubt("%s", about+strings.Join(list, ", "))
	}
}

// keepers are methods with which dependencies' containers change.
var keepers = []string{"Add", "AddIfNotPresent", "Set", "SetDefault", "SetWithTTL", "Put", "Store", "Insert", "Push",
	"PushBack", "PushFront", "Append", "Delete", "Remove", "Forget", "Clear", "Next", "AddAfter", "AddRateLimited",
	"LoadOrStore", "LoadAndDelete", "Swap", "CompareAndSwap", "CompareAndDelete", "Do", "And", "Or"}

// stateless are parts of import paths of types whose keeper methods do not affect reconciles.
var stateless = []string{"prometheus", "opentelemetry", "opencensus", "go-logr", "go.uber.org/zap", "metric", "statsd",
	runtimePath + "/", "k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/tools/record"}

// written returns what an instruction writes. behind is true if it writes not the value itself but what the value
// points to.
func written(i ssa.Instruction) (target ssa.Value, behind bool) {
	switch i := i.(type) {
	case *ssa.Store:
		return i.Addr, false
	case *ssa.MapUpdate:
		return i.Map, true
	case *ssa.Send:
		return i.Chan, true
	case ssa.CallInstruction:
		c := i.Common()
		name := calleeOf(c)
		if f := c.StaticCallee(); f != nil && f.Blocks != nil || len(c.Args) == 0 && !c.IsInvoke() {
			return nil, false
		}
		if name.pkg == "" && slices.Contains([]string{"delete", "clear", "copy"}, name.name) ||
			name.pkg == "sync/atomic" && name.recv == "" && !strings.HasPrefix(name.name, "Load") {
			return c.Args[0], true
		}
		params := c.Signature().Params()
		asks := params.Len() > 0 && isNamed(params.At(0).Type(), "context", "Context")
		if recv := receiver(c); recv != nil && !asks && slices.Contains(keepers, name.name) && name.recv != "WaitGroup" &&
			!slices.ContainsFunc(stateless, func(part string) bool { return strings.Contains(name.pkg, part) }) {
			return recv, true
		}
	}
	return nil, false
}

// inObject reports whether a value is in a Kubernetes object, whose type has DeepCopyInto, or in a loop variable made
// by the compiler. An object that stays in memory is found where it is stored.
func inObject(v ssa.Value) bool {
	isObject := func(v ssa.Value) bool { return types.NewMethodSet(v.Type()).Lookup(nil, "DeepCopyInto") != nil }
	switch x := container(v).(type) {
	case *ssa.FieldAddr:
		return isObject(x.X) || inObject(x.X)
	case *ssa.Parameter:
		return isObject(x)
	case *ssa.Alloc:
		return strings.HasPrefix(x.Comment, "jump$")
	case *ssa.FreeVar:
		return strings.HasPrefix(x.Name(), "jump$")
	}
	return false
}

// nameOfPlace formats what is written as in the source, as far as possible.
func (s *scan) nameOfPlace(v ssa.Value) string {
	switch x := container(v).(type) {
	case *ssa.FieldAddr:
		return s.nameOfPlace(x.X) + "." + fieldOf(x.X.Type(), x.Field).Name()
	case *ssa.Alloc:
		return x.Comment
	default:
		return x.Name()
	}
}

// holder determines whether a value leads to something that outlives a controller's reconcile.
type holder struct {
	*scan
	c    *controller
	seen map[ssa.Value]bool
}

func (h *holder) any(list []ssa.Value) bool {
	return slices.ContainsFunc(list, func(v ssa.Value) bool { return h.holds(v, true) })
}

// holds reports whether what a value refers to outlives a reconcile. behind is true if what the variable points to
// matters rather than the variable, so copies of the variable also count.
func (h *holder) holds(v ssa.Value, behind bool) bool {
	if h.seen[v] {
		return false
	}
	h.seen[v] = true
	switch x := v.(type) {
	case *ssa.Global:
		return h.own[x.Pkg.Pkg] != nil
	case *ssa.FreeVar:
		return h.captured(x, behind)
	case *ssa.Parameter:
		return h.parameter(x)
	case *ssa.Alloc:
		return behind && h.any(h.stores[x])
	case *ssa.FieldAddr:
		if h.holds(x.X, behind) {
			return true
		}
		return behind && h.any(h.fieldsOf(x))
	case *ssa.IndexAddr:
		return h.holds(x.X, behind)
	case *ssa.UnOp:
		return (x.Op == token.MUL || x.Op == token.ARROW) && h.holds(x.X, true)
	case *ssa.Slice:
		return h.holds(x.X, behind)
	case *ssa.Lookup:
		return h.holds(x.X, true)
	case *ssa.Call:
		return h.call(x, 0)
	case *ssa.Extract:
		if call, ok := x.Tuple.(*ssa.Call); ok {
			return h.call(call, x.Index)
		}
		if l, ok := x.Tuple.(*ssa.Lookup); ok {
			return h.holds(l.X, true)
		}
	case *ssa.Field:
		return h.holds(x.X, true)
	}
	return h.any(h.before(v))
}

// fieldsOf returns the values stored in the same field of a local variable.
func (h *holder) fieldsOf(x *ssa.FieldAddr) (out []ssa.Value) {
	local, ok := x.X.(*ssa.Alloc)
	if !ok {
		return nil
	}
	for _, use := range *local.Referrers() {
		f, ok := use.(*ssa.FieldAddr)
		if !ok || f.Field != x.Field {
			continue
		}
		for _, store := range *f.Referrers() {
			if st, ok := store.(*ssa.Store); ok && st.Addr == f {
				out = append(out, st.Val)
			}
		}
	}
	return out
}

// captured follows a captured variable. It outlives a reconcile if the enclosing function does not run for any
// controller: then it is a constructor.
func (h *holder) captured(x *ssa.FreeVar, behind bool) bool {
	if around := x.Parent().Parent(); around != nil && len(h.runs(around)) == 0 {
		ptr, ok := x.Type().(*types.Pointer)
		return !ok || ptr.Elem().String() != "error"
	}
	for _, v := range h.bindings(x) {
		if h.holds(v, behind) {
			return true
		}
	}
	return false
}

// parameter follows a parameter to the arguments of the controller's calls. The receiver of a function that the
// controller calls itself outlives a reconcile.
func (h *holder) parameter(x *ssa.Parameter) bool {
	f := x.Parent()
	if f.Signature.Recv() != nil && f.Params[0] == x {
		for _, roots := range h.c.roots {
			if slices.Contains(roots, f) {
				return true
			}
		}
	}
	i := slices.Index(f.Params, x)
	for _, site := range h.callers[f] {
		if h.c.reached[site.Parent()] != notReached && h.holds(argument(site.Common(), i), true) {
			return true
		}
	}
	return false
}

// call follows the result of a call: the results of the operator's functions, append's first argument, and the contents
// of a sync.Map and the like.
func (h *holder) call(x *ssa.Call, result int) bool {
	name := calleeOf(&x.Call)
	switch {
	case name.pkg == "" && name.name == "append":
		return h.holds(x.Call.Args[0], true)
	case name.recv != "" && (name.pkg == "sync" || name.pkg == "sync/atomic"):
		return h.holds(x.Call.Args[0], true)
	}
	return h.any(h.returned(x, result))
}

// fields finds fields of a reconciler whose types keep state, however they are used.
func (s *scan) fields(c *controller) {
	for _, named := range c.reconcilers {
		st, ok := named.Underlying().(*types.Struct)
		if !ok {
			continue
		}
		for i := range st.NumFields() {
			f := st.Field(i)
			if strings.Contains(types.TypeString(f.Type(), nil), "Expectations") {
				s.find(Look, "Expectations", f.Pos(), "%s has expectations in %s", c.title(), f.Name())
				c.doubt("it counts events (%s)", f.Name())
			}
		}
	}
}
