package adopt

import "slices"

const clientPath = runtimePath + "/pkg/client"

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
			case s.roleIn(l, c) != reconciling || l.has(ctrlrtPath, "Share"):
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
			s.found(Look, codeListOwn, at, "%s %s, its own kind", does(own, "list"), k)
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
		if !s.byField(l) {
			continue
		}
		at := s.module.at(l.CallExpr)
		k, by := s.others(l, kept)
		for _, c := range by {
			c.doubt("it lists %s by a field, of which each replica holds a share (%s:%d)", k, at.File, at.Line)
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
		mine := s.roleIn(l, c) != choosing && (listed.may(c.kind) || listed.mayBeIn(c.owns))
		if s.roleIn(l, c) != choosing && listed.may(c.kind) && c.canShard() {
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
		case k.may(c.kind) && s.roleIn(l, c) == mapping:
			mapped = append(mapped, c)
		case k.mayBeIn(c.owns) && s.roleIn(l, c) != choosing:
			children = append(children, c)
		}
	}
	k := s.kindOf(l.in.TypesInfo, l.list, nil).item()
	if len(mapped) > 0 {
		s.found(Fine, codeListMapped, at, "a handler of %s lists its own kind", titles(mapped))
	}
	if len(children) > 0 {
		s.found(Fine, codeListChildren, at, "%s %s, which it owns", does(children, "list"),
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
