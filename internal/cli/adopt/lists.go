package adopt

import (
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// listing is a List call, or a call that passes its list to one.
type listing struct {
	site ssa.CallInstruction
	// list is the list. reader, if known, and ctx are the client and the context of the call.
	list, reader, ctx ssa.Value
	options           options
}

// options are the names of the types and variables in a call's options.
type options []callee

func (o options) has(names ...string) bool {
	return slices.ContainsFunc(o, func(c callee) bool { return slices.Contains(names, c.name) })
}

// options collects the call's arguments for its last parameter if it is variadic.
func (s *scan) options(call ssa.CallInstruction) (out options) {
	args := call.Common().Args
	if !call.Common().Signature().Variadic() || len(args) == 0 {
		return nil
	}
	slice, ok := args[len(args)-1].(*ssa.Slice)
	if !ok {
		return nil
	}
	for _, use := range *slice.X.Referrers() {
		at, ok := use.(*ssa.IndexAddr)
		if !ok {
			continue
		}
		for _, store := range *at.Referrers() {
			st, ok := store.(*ssa.Store)
			if !ok {
				continue
			}
			for _, v := range s.origins(st.Val, func(v ssa.Value) bool { return !types.IsInterface(v.Type()) }) {
				if named := namedOf(v.Type()); named != nil && named.Obj().Pkg() != nil {
					out = append(out, callee{pkg: named.Obj().Pkg().Path(), name: named.Obj().Name()})
				}
				out = append(out, parts(v)...)
				out = append(out, valueName(v))
			}
		}
	}
	return out
}

// variableLabel stands for labels with a value that is not constant, such as an owner's name.
var variableLabel = callee{name: "variable label"}

// parts returns the fields that a struct sets, and whether a map of labels has a value that is not constant.
func parts(of ssa.Value) (out options) {
	if of.Referrers() == nil {
		return nil
	}
	for _, use := range *of.Referrers() {
		switch use := use.(type) {
		case *ssa.FieldAddr:
			out = append(out, callee{name: fieldOf(of.Type(), use.Field).Name()})
		case *ssa.MapUpdate:
			if _, constant := use.Value.(*ssa.Const); !constant {
				out = append(out, variableLabel)
			}
		}
	}
	return out
}

// byField reports whether a list selects by a field: by an index, or by one that the API server supports.
func (l listing) byField() bool {
	return l.options.has("MatchingFields", "MatchingFieldsSelector", "FieldSelector")
}

// isBound reports whether a list is limited to one object's children according to its options: by an index, by a label
// that is not constant, or by labels in a namespace.
func (l listing) isBound() bool {
	return l.byField() || slices.Contains(l.options, variableLabel) || l.options.has("InNamespace", "Namespace") &&
		l.options.has("MatchingLabels", "MatchingLabelsSelector", "HasLabels", "LabelSelector")
}

// findLists collects the lists, and decides which controllers they keep from being sharded.
func (s *scan) findLists() {
	for i := range s.each() {
		call, ok := i.(ssa.CallInstruction)
		if !ok || !i.Pos().IsValid() {
			continue
		}
		c := call.Common()
		if !mayList(c) {
			continue
		}
		params, args := c.Signature().Params(), argumentsOf(c)
		for n := range params.Len() {
			if isNamed(params.At(n).Type(), clientPath, "ObjectList") {
				s.addList(listing{call, args[n], receiver(c), args[0], s.options(call)}, 0)
				break
			}
		}
	}
	for _, l := range s.lists {
		var own, unclear []*controller
		for _, c := range s.runs(l.site.Parent()) {
			k := s.kindOf(l.list).item()
			switch {
			case c.reached[l.site.Parent()] != reconciling || !c.canShard():
			case !k.known():
				s.find(Look, "ListOfUnknown", s.position(l.site), "a List of a kind that is not in the source, by %s", c.title())
				c.doubt("it lists a kind that is not in the source, and may be its own (%s)", s.where(l.site.Pos()))
			case k == c.kind:
				own = append(own, c)
				c.doubt("it lists %s, its own kind (%s)", k, s.where(l.site.Pos()))
			case slices.Contains(c.owns, k) && !slices.Contains(c.watches, k) && !l.isBound():
				s.find(Look, "ListOfShare", s.position(l.site), "%s: it lists %s, which it owns, of all objects", c.title(), k)
				c.doubt("it lists %s, which it owns, of all objects (%s)", k, s.where(l.site.Pos()))
			case !c.kind.known():
				unclear = append(unclear, c)
				c.doubt("its kind is not in the source, and may be %s, which it lists (%s)", k, s.where(l.site.Pos()))
			}
		}
		if len(own) > 0 {
			s.find(Look, "ListOfShare", s.position(l.site), "%s: it lists %s, its own kind", titles(own),
				s.kindOf(l.list).item())
		}
		if len(unclear) > 0 {
			s.find(Look, "ListOfUnknown", s.position(l.site), "the kind of %s is not in the source, and it lists %s",
				titles(unclear), s.kindOf(l.list).item())
		}
	}
}

// mayList reports whether a call may be a List according to its name: its function is not the operator's. A method
// value such as r.List, and a function in a variable, have no useful name.
func mayList(c *ssa.CallCommon) bool {
	f := c.StaticCallee()
	switch {
	case f != nil && strings.HasSuffix(f.Name(), "$bound"):
		return true
	case f != nil && f.Blocks != nil:
		return false
	case f == nil && !c.IsInvoke():
		return true
	}
	return strings.Contains(strings.ToLower(calleeOf(c).name), "list")
}

// addList adds a list, or each call of the function that receives it as a parameter. It skips lists that ask the API
// server, that ask for the share, or whose kind is kept whole.
func (s *scan) addList(l listing, depth int) {
	f := l.site.Parent()
	if param := s.parameter(l.list); param >= 0 && len(s.callers[f]) > 0 && depth < 4 {
		for _, site := range s.callers[f] {
			c := site.Common()
			next := listing{site, argument(c, param), l.reader, l.ctx, append(slices.Clone(l.options), s.options(site)...)}
			if i := s.parameter(l.reader); i >= 0 {
				next.reader = argument(c, i)
			}
			if i := s.parameter(l.ctx); i >= 0 {
				next.ctx = argument(c, i)
			}
			s.addList(next, depth+1)
		}
		return
	}
	live := func(c *ssa.Call) bool {
		name := calleeOf(&c.Call)
		return name.name == "GetAPIReader" || name.is(clientPath, "New")
	}
	if l.options.has("live", "Live", "share", "Share") || l.reader != nil && s.comesFrom(l.reader, live) ||
		s.keptWhole(s.kindOf(l.list).item()) {
		return
	}
	s.lists = append(s.lists, l)
}

// parameter returns the index of the parameter that a value is, without conversions, or -1.
func (s *scan) parameter(v ssa.Value) int {
	for {
		switch x := v.(type) {
		case *ssa.ChangeInterface:
			v = x.X
		case *ssa.MakeInterface:
			v = x.X
		case *ssa.Parameter:
			return slices.Index(x.Parent().Params, x)
		default:
			return -1
		}
	}
}

// keptWhole reports whether a manager keeps a kind whole.
func (s *scan) keptWhole(k kind) bool {
	for i := range s.each() {
		if c, ok := i.(*ssa.Call); ok && calleeOf(&c.Call).method(ctrlrtPath, "Manager", "KeepWhole") &&
			s.kindOf(argumentsOf(&c.Call)[0]) == k && k.known() {
			return true
		}
	}
	return false
}

// asks reports whether a list uses a controller's own context, and so asks for its share. A list with another context
// may be in any code.
func (s *scan) asks(l listing, c *controller) bool {
	return c.reached[l.site.Parent()] == reconciling || !s.detached(l.ctx)
}

// detached reports whether a context may come from context.Background or context.TODO.
func (s *scan) detached(ctx ssa.Value) bool {
	return slices.ContainsFunc(s.makers(ctx), func(from ssa.Value) bool {
		c, ok := from.(*ssa.Call)
		return ok && calleeOf(&c.Call).is("context", "Background", "TODO")
	})
}

// others returns the controllers that list a sharded kind which they neither own nor watch.
func (s *scan) others(l listing) (out []*controller) {
	k := s.kindOf(l.list).item()
	if !s.isSharded(k) {
		return nil
	}
	for _, c := range s.runs(l.site.Parent()) {
		mine := s.asks(l, c) && (k == c.kind || k.in(c.owns))
		if c.stays() || mine && k == c.kind && c.canShard() { // findLists reported it
			continue
		}
		if !c.shards() || !mine && !k.in(c.watches) {
			out = append(out, c)
		}
	}
	return out
}

// reportLists reports lists of sharded kinds.
func (s *scan) reportLists() {
	for _, l := range s.lists {
		if l.byField() {
			for _, c := range s.others(l) {
				c.doubt("it lists %s by a field, of which each replica holds a share (%s)", s.kindOf(l.list).item(),
					s.where(l.site.Pos()))
			}
		}
	}
	for _, l := range s.lists {
		k, pos := s.kindOf(l.list).item(), s.position(l.site)
		if !s.isSharded(k) {
			continue
		}
		by := titles(s.others(l))
		if len(s.runs(l.site.Parent())) == 0 {
			by = "code outside of reconcilers"
		}
		switch {
		case by == "":
		case l.byField():
			s.find(Must, "ListByIndex", pos, "%s lists %s by a field", by, k)
		default:
			s.find(Look, "ListOfOthers", pos, "%s lists %s, of which each replica holds a share", by, k)
		}
	}
}
