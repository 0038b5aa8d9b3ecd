package adopt

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

const clientPath = runtimePath + "/pkg/client"

// listing is a List, or a call that hands its list on to one.
type listing struct {
	*call
	list ast.Expr
	// reader is what lists, if that is known.
	reader given
	// options are all calls on the way, whose arguments may have options.
	options []*call
	key     string
}

// listings returns the module's lists. Any function is one that takes a client.ObjectList and is named so, but those
// of the module itself, in which the list is. A list that a function gets as a parameter is where it is called.
func (s *source) listings() (out []listing) {
	for _, c := range s.calls {
		if c.test {
			continue
		}
		info := c.in.TypesInfo
		obj := objectOf(info, c.Fun)
		if obj == nil || !strings.Contains(strings.ToLower(obj.Name()), "list") {
			continue
		}
		if fn, ok := obj.(*types.Func); ok && len(s.reach.keysOf(fn)) > 0 {
			continue
		}
		sig, ok := obj.Type().Underlying().(*types.Signature)
		if !ok {
			continue
		}
		for i := range min(sig.Params().Len(), len(c.Args)) {
			if !isNamed(sig.Params().At(i).Type(), clientPath, "ObjectList") {
				continue
			}
			l := listing{call: c, list: c.Args[i], options: []*call{c}}
			if sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr); ok {
				l.reader = given{Expr: sel.X, info: info}
			}
			out = append(out, s.callers(l, 0)...)
			break
		}
	}
	return out
}

// callers returns where a list comes from that its function gets as a parameter: all calls, or the list itself if
// those are not known.
func (s *source) callers(l listing, depth int) []listing {
	l.key = s.keyOf(l.CallExpr)
	f := s.reach.functions[l.key]
	info := l.in.TypesInfo
	if f == nil || depth > 3 || s.values.named[l.key] || s.kindOf(info, l.list, nil).known() {
		return []listing{l}
	}
	v, ok := objectOf(info, addressed(l.list)).(*types.Var)
	if !ok || !slices.Contains(f.params(), types.Object(v)) {
		return []listing{l}
	}
	list := s.values.of[s.module.variableKey(v)]
	var out []listing
	for _, from := range list {
		if from.call == nil {
			return []listing{l}
		}
		out = append(out, s.callers(listing{call: from.call, list: from.Expr, reader: f.argument(l.reader, from.call),
			options: append(slices.Clone(l.options), from.call)}, depth+1)...)
	}
	if len(out) == 0 {
		return []listing{l}
	}
	return out
}

// has reports whether the list has an option of such a name or type.
func (l listing) has(pkg string, names ...string) bool {
	return slices.ContainsFunc(l.options, func(c *call) bool { return hasOption(c, pkg, names...) })
}

// byField reports whether a list is by a field: an index, or what the API server knows of fields.
func (s *source) byField(l listing) bool {
	if l.has(clientPath, "MatchingFields", "MatchingFieldsSelector") {
		return true
	}
	for _, c := range l.options {
		for _, arg := range c.Args {
			if !isNamed(c.in.TypesInfo.TypeOf(arg), clientPath, "ListOptions") {
				continue
			}
			if lit, _ := s.literalOf(c.in.TypesInfo, arg); field(lit, "FieldSelector") != nil {
				return true
			}
		}
	}
	return false
}

// findReads looks at lists by reconcilers of their own kinds, which cannot surely be shared. What else is to be said of
// lists depends on what is sharded after that: see tellReads.
func (s *source) findReads() {
	s.lists = slices.DeleteFunc(s.listings(), func(l listing) bool {
		return l.has(ctrlrtPath, "Live") || l.reader.Expr != nil && s.isLive(l.reader)
	})
	kept := s.keptWhole()
	for _, l := range s.lists {
		at := s.module.at(l.CallExpr)
		var own, unclear []*controller
		for _, c := range s.runsFor(l.key) {
			k := s.kindOf(l.in.TypesInfo, l.list, c).item()
			switch {
			case c.reached[l.key] != reconciling || l.has(ctrlrtPath, "Share"):
			case !k.known():
				s.found(Look, codeListUnknown, at, "a List of a kind that is not in the source, by %s", c.title())
				c.doubt("it lists a kind that is not in the source, and may be its own (%s:%d)", at.File, at.Line)
			case !c.canShard() || k.mayBeIn(kept):
			case k.may(c.kind):
				own = append(own, c)
				c.doubt("it lists %s, its own kind (%s:%d)", k, at.File, at.Line)
			case !c.kind.known() && !k.mayBeIn(c.owns) && !k.mayBeIn(c.watches):
				unclear = append(unclear, c)
				c.doubt("its kind is not in the source, and may be %s, which it lists (%s:%d)", k, at.File, at.Line)
			}
		}
		if len(own) > 0 {
			k := s.kindOf(l.in.TypesInfo, l.list, own[0]).item()
			s.found(Look, codeListOwn, at, "%s lists %s, its own kind", titles(own), k)
		}
		if len(unclear) > 0 {
			k := s.kindOf(l.in.TypesInfo, l.list, unclear[0]).item()
			s.found(Look, codeListUnknown, at, "the kind of %s is not in the source, and it lists %s", titles(unclear), k)
		}
	}
}

// tellReads says what is to be said of lists of kinds that are sharded, and of indexes.
func (s *source) tellReads() {
	kept := s.keptWhole()
	for _, l := range s.lists {
		if k, by := s.others(l, kept); s.byField(l) {
			at := s.module.at(l.CallExpr)
			for _, c := range by {
				c.doubt("it lists %s by a field, of which another controller's replicas hold shares (%s:%d)", k, at.File, at.Line)
			}
		}
	}
	for _, l := range s.lists {
		s.tellRead(l, kept)
	}
	for _, c := range s.calls {
		if !c.test && c.method(clientPath, "FieldIndexer", "IndexField") && len(c.Args) == 4 {
			if k := s.kindOf(c.in.TypesInfo, c.Args[1], nil); s.isSharded(k) {
				s.found(Fine, codeIndex, s.module.at(c.CallExpr), "an index of %s, of which each replica holds a share", k)
			}
		}
	}
}

// keptWhole are the kinds that a manager keeps whole.
func (s *source) keptWhole() (out []kind) {
	for _, c := range s.calls {
		if !c.test && c.method(ctrlrtPath, "Manager", "KeepWhole") && len(c.Args) == 1 {
			out = append(out, s.kindOf(c.in.TypesInfo, c.Args[0], nil))
		}
	}
	return out
}

// others are the controllers that list a sharded kind which is neither theirs nor watched by them.
func (s *source) others(l listing, kept []kind) (k kind, by []*controller) {
	for _, c := range s.runsFor(l.key) {
		listed := s.kindOf(l.in.TypesInfo, l.list, c).item()
		if c.stays() || !s.isSharded(listed) || listed.mayBeIn(kept) || l.has(ctrlrtPath, "Share") {
			continue
		}
		mine := c.reached[l.key] != choosing && (listed.may(c.kind) || listed.mayBeIn(c.owns))
		if c.reached[l.key] != choosing && listed.may(c.kind) && c.canShard() {
			continue // see findReads; a duty may not be for what another one shares
		}
		if !(c.shards() && (mine || listed.mayBeIn(c.watches))) {
			k, by = listed, append(by, c)
		}
	}
	return k, by
}

// tellRead says what is to be said of a list.
func (s *source) tellRead(l listing, kept []kind) {
	at := s.module.at(l.CallExpr)
	runs := s.runsFor(l.key)
	var mapped, children []*controller
	for _, c := range runs {
		k := s.kindOf(l.in.TypesInfo, l.list, c).item()
		switch {
		case !c.shards() || !s.isSharded(k) || k.mayBeIn(kept) || l.has(ctrlrtPath, "Share"):
		case k.may(c.kind) && c.reached[l.key] == mapping:
			mapped = append(mapped, c)
		case k.mayBeIn(c.owns) && c.reached[l.key] != choosing:
			children = append(children, c)
		}
	}
	k := s.kindOf(l.in.TypesInfo, l.list, nil).item()
	if len(mapped) > 0 {
		s.found(Fine, codeListMapped, at, "a handler of %s lists its own kind", titles(mapped))
	}
	if len(children) > 0 {
		s.found(Fine, codeListChildren, at, "%s lists %s, which it owns", titles(children),
			s.kindOf(l.in.TypesInfo, l.list, children[0]).item())
	}
	listed, others := s.others(l, kept)
	by := titles(others)
	if len(runs) == 0 && s.isSharded(k) && !k.mayBeIn(kept) && !l.has(ctrlrtPath, "Share") {
		listed, by = k, "code outside of reconcilers"
	}
	switch {
	case by == "":
	case s.byField(l):
		s.found(Must, codeListIndex, at, "%s lists %s by a field", by, listed)
	default:
		s.found(Look, codeListOther, at, "%s lists %s, of which each replica holds a share", by, listed)
	}
}

// hasOption reports whether a call has an argument of such a name or type.
func hasOption(c *call, pkg string, names ...string) bool {
	for _, arg := range c.Args {
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

// isLive reports whether an expression is surely a reader that asks the API server: that of GetAPIReader, or a client
// that client.New makes. Variables, fields and parameters are followed, all of whose values must be such.
func (s *source) isLive(v given) bool { return s.staysLive(v, 0) }

func (s *source) staysLive(v given, depth int) bool {
	if depth > 4 { // a reader that is handed on more often than that is not followed
		return false
	}
	var list []given
	switch e := ast.Unparen(v.Expr).(type) {
	case *ast.CallExpr:
		c, ok := calleeIn(v.info, e.Fun)
		if !ok {
			return false
		}
		if c.name == "GetAPIReader" || c == (callee{pkg: clientPath, name: "New"}) {
			return true
		}
		if fn, ok := objectOf(v.info, e.Fun).(*types.Func); ok {
			for _, key := range s.reach.keysOf(fn) {
				list = append(list, s.returned(key, v.result)...)
			}
		}
	case *ast.Ident, *ast.SelectorExpr:
		if obj, ok := objectOf(v.info, e).(*types.Var); ok {
			list = s.values.of[s.module.variableKey(obj)]
		}
	}
	return len(list) > 0 && !slices.ContainsFunc(list, func(v given) bool { return !s.staysLive(v, depth+1) })
}
