package sim

import (
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
)

// contents are what a node's stream let through, and what is known of that for the checks.
type contents struct {
	has []state // by name
	// put is the highest version of a name that the store got, left that of one that went on from a slot that the stream
	// carries, gone are those told to be gone, by UID.
	put, left []uint64
	gone      map[int]bool
}

func newContents(names int) contents {
	s := contents{has: make([]state, names), put: make([]uint64, names), left: make([]uint64, names), gone: map[int]bool{}}
	for name := range s.has {
		s.has[name].name = name
	}
	return s
}

// stored returns in which slots the store has names, of some. See stream.Stream.Stored.
func (in *informer) stored(set slot.Set, upTo string) map[int]slot.Slot {
	out, o := map[int]slot.Slot{}, &in.n.w.objects
	if o.kind.Moves {
		stored := in.core.Stored(set, upTo)
		for name := range in.has {
			if place, has := stored[o.names[name]]; has {
				out[name] = place.Slot
			}
		}
		return out
	}
	for name, is := range in.has {
		if is.exists && set.Has(is.slot) {
			out[name] = is.slot
		}
	}
	return out
}

// sees is the version of an object in the store.
func (in *informer) sees(k key) uint64 { return in.has[k.index()].version }

// send has the store get what the stream decided. Nothing comes back.
func (in *informer) send(outs []stream.Out) {
	w := in.n.w
	back := func(is state, why string) { w.violate("comes back", "the store of %s gets %v %s", in.n.ID, is, why) }
	for _, out := range outs {
		is := *out.Object.Body.(*state)
		name := is.name
		switch out.Action {
		case stream.Put:
			switch {
			case is.version < in.put[name] || is.version == in.put[name] && in.has[name].exists && !w.objects.kind.Selects:
				back(is, "after version "+text(in.put[name]))
			case is.version <= in.left[name]:
				back(is, "after it had gone on from there")
			case in.gone[is.uid]:
				back(is, "after it was gone")
			}
			in.put[name], in.has[name] = is.version, is
			if !w.objects.wanders(name) {
				in.notify(key{is.slot, name % keysPerSlot})
			}
		case stream.Remove:
			in.gone[is.uid] = true
			in.has[name] = state{name: name}
		case stream.Leave:
			if is.in && in.core.Carries(is.slot) {
				in.left[name] = max(in.left[name], is.version)
			}
			in.has[name] = state{name: name}
		case stream.ActionUnknown:
			w.violate("comes back", "%s: %v", in.n.ID, out)
		}
	}
}

// replaced has a list of the whole replace the store.
func (in *informer) replaced(has []state) {
	for name, is := range has {
		if is.exists && is.version < in.put[name] && is.uid == in.has[name].uid {
			in.n.w.violate("comes back", "a list of the whole brings %v back to the store of %s", is, in.n.ID)
		}
		in.put[name] = max(in.put[name], is.version)
	}
	in.has = has
}

// checkShown looks whether the store shows everything of a slot up to a version, of objects that have not changed since
// and of which the watch tells.
func (in *informer) checkShown(s slot.Slot, version uint64, when string) {
	w, o := in.n.w, &in.n.w.objects
	for name, has := range in.has {
		is := o.state(name)
		switch {
		case is.version > version: // it may show that, or what was before
		case o.wrong[name] > 0, o.kind.Selects && has.exists && has.label != has.slot: // the watch does not tell
		case is.exists && is.in && is.slot == s && has != is:
			w.violate("not shown", "%s %s slot %v up to version %d: the store has %v, not %v",
				in.n.ID, when, s, version, has, is)
		case has.exists && has.slot == s && has != is &&
			!(o.kind.Selects && is.exists && has.uid == is.uid && has.slot == is.slot):
			w.violate("not shown", "%s %s slot %v up to version %d: the store still has %v, but %v",
				in.n.ID, when, s, version, has, is)
		}
	}
}

// checkReached looks at slots that the stream says it has brought to a version.
func (in *informer) checkReached() {
	if in.whole {
		return
	}
	for _, s := range in.wanted.Slots() {
		if !in.core.Carries(s) || !in.core.Ready(s) {
			continue
		}
		for _, version := range []uint64{in.n.w.version, in.next, number(in.core.Position())} {
			if in.core.Reached([]slot.Slot{s}, text(version)) {
				in.checkShown(s, version, "has reached")
				break
			}
		}
	}
}

// checkComplete looks at the store of a node that opens slots (rule R8).
func (n *Node) checkComplete(a member.Open) {
	in, o := &n.informer, &n.w.objects
	for _, s := range a.Slots.Slots() {
		if !in.wanted.Has(s) || !in.core.Ready(s) {
			n.w.violate("incomplete", "%s opens slot %v, whose objects it has not listed", n.ID, s)
			continue
		}
		for i := range keysPerSlot {
			k := key{s, i}
			of, sees := &o.of[k.index()], in.sees(k)
			if of.seen > sees && of.seenBy != n {
				n.w.violateAtGate("stale open", "%s opens slot %v and sees version %d of %v; %s has reconciled version %d",
					n.ID, s, sees, k, of.seenBy.ID, of.seen)
			}
			if was := o.asOf(k.index(), n.present[s]).version; was > sees {
				n.w.violate("stale open", "%s opens slot %v and sees version %d of %v; it was at %d when that was to be loaded",
					n.ID, s, sees, k, was)
			}
			if of.wrote > sees && of.wroteBy != n {
				n.w.violateAtGate("stale open", "%s opens slot %v and sees version %d of %v; %s wrote version %d",
					n.ID, s, sees, k, of.wroteBy.ID, of.wrote)
			}
		}
		for _, was := range o.removed {
			has := in.has[was.name]
			if was.by != nil && was.by != n && was.slot == s && has.exists && has.uid == was.uid && has.slot == s {
				n.w.violateAtGate("stale open", "%s opens slot %v with %v, which %s has deleted", n.ID, s, has, was.by.ID)
			}
		}
		in.checkShown(s, n.present[s], "opens")
	}
}
