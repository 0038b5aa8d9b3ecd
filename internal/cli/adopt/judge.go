package adopt

import (
	"slices"
	"strings"
)

// everywhere is why a controller is left as it is: it needs no leader today either.
const everywhere = "NeedLeaderElection is false"

// judge says which controllers can be sharded as they are written.
func (s *source) judge() {
	names := map[string]int{}
	for _, c := range s.controllers {
		names[c.title()]++
	}
	for _, c := range s.controllers {
		refuse := func(text string) { c.refused = append(c.refused, text) }
		if c.whole && !c.adopted {
			continue
		}
		switch {
		case c.raw:
			refuse("it is made without a builder")
		case c.typed:
			refuse("its requests are typed: the builder of package ctrlrt has reconcile.Request only")
		case c.escapes:
			refuse("its builder is passed on, and was not followed")
		case !c.hasFor:
			refuse("it has no For, so there is no kind to shard by")
		}
		for _, p := range s.module.packages {
			if len(p.Errors) > 0 && c.runsIn(p.PkgPath) {
				c.doubt("package %s does not compile here, so not all of it is seen", p.PkgPath)
			}
		}
		if !c.raw && !c.escapes && !c.completes {
			c.doubt("where its builder is completed was not found")
		}
		if c.raw || !c.hasFor {
			continue
		}
		if c.kind.mayBeIn(c.owns) {
			refuse("it is For and Owns one kind")
		}
		if c.kind.mayBeIn(c.watches) {
			refuse("it Watches the kind that it is For")
		}
		if !c.adopted && names[c.title()] > 1 {
			c.doubt("another controller has its name: give each one with Named, if both are in one manager")
		}
	}
}

// runsIn reports whether a package has the controller's builder or its reconciler.
func (c *controller) runsIn(path string) bool {
	return c.in.PkgPath == path || c.reconciler != nil && c.reconciler.Obj().Pkg().Path() == path
}

// canShard reports whether a controller can be sharded as far as its builder goes.
func (c *controller) canShard() bool { return len(c.refused) == 0 && !c.isDuty && !c.stays() }

// stays reports whether it is built by controller-runtime on a manager of mgr.Whole(), as is right with Rota, too.
func (c *controller) stays() bool { return c.whole && !c.adopted }

// shards reports whether it is sharded after all: by its builder, and by what it does.
func (c *controller) shards() bool {
	what, _ := c.becomes()
	return what == Sharded && c.canShard()
}

// isSharded reports whether a kind's objects are shared, by the controllers that are: as For or as Owns.
func (s *source) isSharded(k kind) bool {
	return k.known() && slices.ContainsFunc(s.controllers, func(c *controller) bool {
		return c.shards() && (k.may(c.kind) || k.mayBeIn(c.owns) && !s.watched(k))
	})
}

// watched reports whether a sharded controller watches a kind, so that a kind that is only owned is whole.
func (s *source) watched(k kind) bool {
	return slices.ContainsFunc(s.controllers, func(c *controller) bool {
		return c.shards() && k.mayBeIn(c.watches)
	})
}

// decide says what becomes of each controller.
func (s *source) decide() {
	for _, c := range s.controllers {
		out := Controller{Name: c.title(), File: c.at.File, Line: c.at.Line, Adopted: c.adopted}
		if c.name == "" && !c.kind.known() {
			out.Name = ""
		}
		if c.kind.known() {
			out.For = c.kind.full()
		}
		for _, k := range c.owns {
			out.Owns = append(out.Owns, k.full())
		}
		for _, k := range c.watches {
			out.Watches = append(out.Watches, k.full())
		}
		out.Becomes, out.Reason = c.becomes()
		out.Doubtful = out.Becomes == Duty && len(c.refused) == 0 && len(c.doubts) > 0
		s.report.Controllers = append(s.report.Controllers, out)
		s.tell(c, out)
	}
}

// becomes says what a controller becomes, and why it is not sharded. What is not surely right on a share becomes a
// duty, which runs as under leader election.
func (c *controller) becomes() (what, reason string) {
	switch {
	case c.isDuty:
		return Duty, ""
	case c.adopted:
		return Sharded, strings.Join(c.refused, "; ")
	case c.stays():
		return Stays, ""
	case c.raw, c.typed, c.escapes, c.build && len(c.refused)+len(c.doubts) > 0:
		return ByHand, strings.Join(append(slices.Clone(c.refused), c.doubts...), "; ")
	case len(c.refused) > 0 && strings.HasPrefix(c.refused[0], everywhere):
		return ByHand, c.refused[0]
	case len(c.refused)+len(c.doubts) > 0:
		return Duty, strings.Join(append(slices.Clone(c.refused), c.doubts...), "; ")
	}
	return Sharded, ""
}

// tell adds the finding of a controller.
func (s *source) tell(c *controller, out Controller) {
	switch {
	case c.adopted && len(c.refused) > 0 && !c.isDuty:
		s.found(Must, codeByHand, c.at, "controller %s is refused: %s", c.title(), out.Reason)
	case c.stays():
		s.tellWhole(c)
	case c.adopted:
		s.found(Fine, codeAdopted, c.at, "controller %s is built by package ctrlrt", c.title())
	case out.Becomes == Sharded:
		s.found(Must, codeSharded, c.at, "controller %s can be sharded", c.title())
	case out.Becomes == Duty:
		s.found(Must, codeDuty, c.at, "controller %s becomes a duty: %s", c.title(), out.Reason)
	case len(c.refused) > 0 && strings.HasPrefix(c.refused[0], everywhere):
		f := s.found(Look, codeByHand, c.at, "controller %s: %s", c.title(), out.Reason)
		f.Why, f.Instead = "every replica reconciles all objects of its kind", "nothing, if that is meant"
	default:
		s.found(Must, codeByHand, c.at, "controller %s: %s", c.title(), out.Reason)
	}
}

// tellWhole adds the finding of a controller that is built on mgr.Whole(). It needs a leader, as with any manager.
func (s *source) tellWhole(c *controller) {
	elected := func(m Manager) bool { return m.LeaderElection != off }
	if slices.ContainsFunc(s.report.Managers, elected) || c.everywhere {
		s.found(Fine, codeAdopted, c.at, "controller %s is built on mgr.Whole(), and reconciles all objects", c.title())
		return
	}
	s.found(Must, codeByHand, c.at, "controller %s is built on mgr.Whole(), and there is no leader election", c.title())
}
