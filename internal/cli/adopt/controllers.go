package adopt

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// role is what a function does for a controller. Higher roles take precedence.
type role int

const (
	notReached role = iota
	// handling: a handler that turns events into requests, a predicate and the like.
	handling
	// reconciling: the reconciler.
	reconciling
)

type controller struct {
	call *ssa.Call
	pos  token.Pos
	// typed: its requests may be other than reconcile.Request. adopted: package ctrlrt builds it. duty: as a duty. raw: it
	// is made without a builder. escapes: its builder is passed to code that was not followed. completes: its builder is
	// completed. whole: its manager comes from mgr.Whole().
	typed, adopted, duty, raw, escapes, completes, build, whole bool
	// everywhere is true if it does not need a leader.
	everywhere bool

	name          string
	kind          kind
	hasFor        bool
	owns, watches []kind
	reconcilers   []*types.Named
	roots         [reconciling + 1][]*ssa.Function
	reached       map[*ssa.Function]role

	// refused explains why it cannot be sharded as it is, doubts why that may be wrong.
	refused, doubts []string
	note            *note
}

func (c *controller) refuse(text string) { c.refused = append(c.refused, text) }

func (c *controller) doubt(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.doubts, text) {
		c.doubts = append(c.doubts, text)
	}
}

// title formats the controller for messages.
func (c *controller) title() string {
	switch {
	case c.name != "":
		return c.name
	case c.kind.known():
		return strings.ToLower(c.kind.name)
	}
	return "without a name"
}

func titles(list []*controller) string {
	var names []string
	for _, c := range list {
		if !slices.Contains(names, c.title()) {
			names = append(names, c.title())
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// findControllers finds builders, and controllers without one.
func (s *scan) findControllers() {
	for i := range s.each() {
		call, ok := i.(*ssa.Call)
		if !ok || s.calls[call.Pos()] == nil {
			continue
		}
		c := &controller{call: call, pos: s.calls[call.Pos()].Pos()}
		switch name := calleeOf(&call.Call); {
		case name.is(runtimePath, "NewControllerManagedBy"), name.is(builderPath, "ControllerManagedBy"):
		case name.is(builderPath, "TypedControllerManagedBy"):
			c.typed = true
		case name.is(ctrlrtPath, "NewControllerManagedBy"):
			c.adopted = true
		case name.is(ctrlrtPath, "NewDutyControllerManagedBy"):
			c.adopted, c.duty = true, true
		case name.is(runtimePath+"/pkg/controller", "New", "NewUnmanaged", "NewTyped", "NewTypedUnmanaged"):
			c.raw = true
			c.name = text(call.Call.Args[0])
			c.refuse("it is made without a builder")
		default:
			continue
		}
		if !c.raw {
			c.whole = s.isWhole(call.Call.Args[0])
			s.follow(c, call, map[ssa.Value]bool{})
		}
		c.reached = map[*ssa.Function]role{}
		for _, r := range []role{handling, reconciling} {
			for f := range s.reach(c.roots[r]) {
				c.reached[f] = r
			}
		}
		s.controllers = append(s.controllers, c)
	}
}

// follow follows the calls on a builder.
func (s *scan) follow(c *controller, b ssa.Value, seen map[ssa.Value]bool) {
	if seen[b] {
		return
	}
	seen[b] = true
	for _, use := range *b.Referrers() {
		switch use := use.(type) {
		case *ssa.DebugRef:
		case *ssa.Phi:
			s.follow(c, use, seen)
		case *ssa.Call:
			if receiver(&use.Call) != b {
				c.escapes = true
				continue
			}
			name := calleeOf(&use.Call).name
			s.builderCall(c, name, use)
			if name != "Complete" && name != "Build" {
				s.follow(c, use, seen)
			}
		default:
			c.escapes = true
		}
	}
}

// builderCall processes one call of a builder's method.
func (s *scan) builderCall(c *controller, name string, call *ssa.Call) {
	args := argumentsOf(&call.Call)
	switch name {
	case "For":
		c.kind, c.hasFor = s.kindOf(args[0]), true
	case "Owns":
		if !s.options(call).has("MatchEveryOwner") {
			c.owns = append(c.owns, s.kindOf(args[0]))
		}
	case "Watches", "WatchesMetadata":
		k := s.kindOf(args[0])
		c.watches = append(c.watches, k)
		s.find(Look, "Watches", s.position(call), "%s watches %s", c.title(), k)
	case "WatchesRawSource":
		s.reportSource(c, s.position(call), args[0])
	case "Named":
		c.name = text(args[0])
	case "WithOptions":
		s.controllerOptions(c, call)
	case "Complete", "Build":
		c.completes, c.build = true, c.build || name == "Build"
		if len(args) > 0 && !(s.reconciler(c, args[0]) && len(c.roots[reconciling]) > 0) {
			c.doubt("its reconciler was not found: %s", types.ExprString(s.calls[call.Pos()].Args[0]))
		}
		return
	}
	for _, arg := range args {
		c.roots[handling] = append(c.roots[handling], s.functionsIn(arg)...)
	}
}

// reconciler finds the Reconcile method that a value leads to, behind adapters, constructors and variables. It returns
// false if some possible values are not in the operator's source.
func (s *scan) reconciler(c *controller, v ssa.Value) bool {
	own := func(v ssa.Value) bool { return s.method(v.Type(), "Reconcile") != nil }
	all := true
	for _, from := range s.origins(v, own) {
		switch {
		case own(from):
			c.roots[reconciling] = append(c.roots[reconciling], s.method(from.Type(), "Reconcile"))
			c.reconcilers = append(c.reconcilers, namedOf(from.Type()))
			continue
		case isNil(from):
			continue
		}
		switch from := from.(type) {
		case *ssa.Function:
			c.roots[reconciling] = append(c.roots[reconciling], from)
			all = all && from.Blocks != nil && reconciles(from.Signature)
		case *ssa.MakeClosure:
			c.roots[reconciling] = append(c.roots[reconciling], from.Fn.(*ssa.Function))
			all = all && reconciles(from.Fn.(*ssa.Function).Signature)
		case *ssa.Call: // a dependency's adapter: ignore arguments without a Reconcile, such as nil
			found := false
			for _, arg := range from.Call.Args {
				before := len(c.roots[reconciling])
				found = s.reconciler(c, arg) && len(c.roots[reconciling]) > before || found
			}
			all = all && found
		default:
			all = false
		}
	}
	return all
}

// reconciles reports whether a function can be a reconciler rather than an option of one.
func reconciles(f *types.Signature) bool {
	return f.Results().Len() == 2 && isNamed(f.Results().At(0).Type(), runtimePath+"/pkg/reconcile", "Result")
}

func isNil(v ssa.Value) bool {
	c, ok := v.(*ssa.Const)
	return ok && c.IsNil()
}

// controllerOptions processes the argument of WithOptions.
func (s *scan) controllerOptions(c *controller, call *ssa.Call) {
	info := s.infoOf(call.Parent())
	lit, _ := ast.Unparen(s.calls[call.Pos()].Args[0]).(*ast.CompositeLit)
	if lit == nil {
		s.find(Look, "Workers", s.position(call), "%s has options that were not read", c.title())
		if len(s.storesOf(argumentsOf(&call.Call)[0].Type(), "NeedLeaderElection")) > 0 {
			c.doubt("its options were not read, and may need a leader")
		}
		return
	}
	if kv := field(lit, "NeedLeaderElection"); kv != nil {
		switch value, known := truth(info, kv.Value); {
		case known && value:
			c.refuse("NeedLeaderElection is true")
		case known:
			c.everywhere = true
			c.refuse("NeedLeaderElection is false: it runs on every replica, which Rota leaves as it is")
		default:
			c.refuse("NeedLeaderElection is decided when the program runs")
		}
	}
}

// judge decides which controllers can be sharded according to their builders.
func (s *scan) judge() {
	names := map[string]int{}
	for _, c := range s.controllers {
		names[c.title()]++
	}
	for _, c := range s.controllers {
		switch {
		case c.raw || c.stays():
			continue
		case c.typed:
			c.refuse("its requests are typed: the builder of package ctrlrt has reconcile.Request only")
		case c.escapes:
			c.refuse("its builder is passed on, and was not followed: what is built with it is not in this report")
			continue
		case !c.hasFor:
			c.refuse("it has no For, so there is no kind to shard by")
		case c.kind.known() && c.kind.in(c.owns):
			c.refuse("it is For and Owns one kind")
		case c.kind.known() && c.kind.in(c.watches):
			c.refuse("it Watches the kind that it is For")
		case !c.kind.known() && len(c.owns)+len(c.watches) > 0:
			c.doubt("its kind is not in the source, and it owns or watches others")
		}
		if !c.completes {
			c.doubt("where its builder is completed was not found")
		}
		if !c.adopted && names[c.title()] > 1 {
			c.doubt("another controller has its name: give each one with Named, if both are in one manager")
		}
		s.fields(c)
	}
}

// canShard reports whether a controller can be sharded according to its builder.
func (c *controller) canShard() bool { return len(c.refused) == 0 && !c.duty && !c.stays() }

// stays reports whether controller-runtime builds it on a manager from mgr.Whole(), which is correct with Rota.
func (c *controller) stays() bool { return c.whole && !c.adopted }

// shards reports whether it can be sharded, according to its builder and its effects.
func (c *controller) shards() bool {
	what, _ := c.becomes()
	return what == Sharded && c.canShard()
}

// isSharded reports whether a kind's objects are sharded: a sharded controller is for the kind, or owns it and none
// watches it.
func (s *scan) isSharded(k kind) bool {
	watched := slices.ContainsFunc(s.controllers, func(c *controller) bool { return c.shards() && k.in(c.watches) })
	return k.known() && slices.ContainsFunc(s.controllers, func(c *controller) bool {
		return c.shards() && (k == c.kind || k.in(c.owns) && !watched)
	})
}

// becomes returns what a controller becomes, and why it is not sharded. A controller that may misbehave with a share of
// the objects becomes a duty, which runs as under leader election.
func (c *controller) becomes() (what, reason string) {
	reason = strings.Join(append(slices.Clone(c.refused), c.doubts...), "; ")
	switch {
	case c.duty, c.stays():
		return map[bool]string{true: Duty, false: Stays}[c.duty], ""
	case c.adopted:
		return Sharded, strings.Join(c.refused, "; ")
	case c.raw, c.typed, c.escapes, c.everywhere, c.build && reason != "":
		return ByHand, reason
	case reason != "":
		return Duty, reason
	}
	return Sharded, ""
}

func (s *scan) decide() {
	for _, c := range s.controllers {
		what, reason := c.becomes()
		switch {
		case c.adopted && reason != "":
			c.note = s.find(Must, "ControllerByHand", c.pos, "controller %s is refused: %s", c.title(), reason)
		case c.stays():
			c.note = s.find(Fine, "Adopted", c.pos, "controller %s is built on mgr.Whole(), and reconciles all objects",
				c.title())
			if !c.everywhere && !slices.ContainsFunc(s.managers, func(m *manager) bool { return m.election != off }) {
				c.note.Level, c.note.Code = Must, "ControllerByHand"
				c.note.Text = fmt.Sprintf("controller %s is built on mgr.Whole(), and there is no leader election", c.title())
			}
		case c.adopted:
			c.note = s.find(Fine, "Adopted", c.pos, "controller %s is built by package ctrlrt", c.title())
		case what == Sharded:
			c.note = s.find(Must, "ShardedController", c.pos, "build controller %s with package ctrlrt: it can be sharded",
				c.title())
		case what == Duty:
			c.note = s.find(Must, "DutyController", c.pos, "build controller %s with package ctrlrt, as a duty: %s",
				c.title(), reason)
		case c.everywhere:
			c.note = s.find(Look, "ControllerByHand", c.pos, "controller %s: %s", c.title(), reason)
			c.note.Why, c.note.Instead = "every replica reconciles all objects of its kind", "nothing, if that is meant"
		default:
			c.note = s.find(Must, "ControllerByHand", c.pos, "controller %s: %s", c.title(), reason)
		}
	}
}

// report returns the controller's entry in the report.
func (c *controller) report(file string, line int) Controller {
	out := Controller{Name: c.title(), File: file, Line: line, For: c.kind.full(), Adopted: c.adopted}
	if c.name == "" && !c.kind.known() {
		out.Name = ""
	}
	for _, k := range c.owns {
		out.Owns = append(out.Owns, k.full())
	}
	for _, k := range c.watches {
		out.Watches = append(out.Watches, k.full())
	}
	out.Becomes, out.Reason = c.becomes()
	out.Doubtful = out.Becomes == Duty && len(c.refused) == 0 && len(c.doubts) > 0
	return out
}

// runs returns the controllers for which a function runs.
func (s *scan) runs(f *ssa.Function) (out []*controller) {
	for _, c := range s.controllers {
		if c.reached[f] != notReached {
			out = append(out, c)
		}
	}
	return out
}
