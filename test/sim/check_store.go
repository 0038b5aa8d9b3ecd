package sim

import (
	"github.com/rota-dev/rota/internal/delivery/stream"
	"github.com/rota-dev/rota/internal/protocol/member"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/streamtest"
)

// sees is the version of an object in the store.
func (in *informer) sees(k key) uint64 { return in.Has[k.index()].Version }

// send has the store get what the stream decided, and notifies of it.
func (in *informer) send(outs []stream.Out) error {
	err := in.Send(outs)
	for _, out := range outs {
		if is := out.Object.Body.(*streamtest.State); out.Action == stream.Put && !in.n.w.objects.wanders(is.Name) {
			in.notify(key{is.Slot, is.Name % keysPerSlot})
		}
	}
	return err
}

// comesBack tells of what came back into the store.
func (in *informer) comesBack(err error) {
	if err != nil {
		in.n.w.violate("comes back", "%s: %v", in.n.ID, err)
	}
}

// checkShown looks whether the store shows everything of a slot up to a version, of objects that have not changed since
// and of which the watch tells.
func (in *informer) checkShown(s slot.Slot, version uint64, when string) {
	o := &in.n.w.objects
	err := in.Shows(s, version, func(name int) (streamtest.State, bool) { return o.state(name), o.wrong[name] > 0 })
	if err != nil {
		in.n.w.violate("not shown", "%s %s %v", in.n.ID, when, err)
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
func (c *checks) checkComplete(a member.Open) {
	in, o := &c.n.informer, &c.w.objects
	for _, s := range a.Slots.Slots() {
		if !in.wanted.Has(s) || !in.core.Ready(s) {
			c.w.violate("incomplete", "%s opens slot %v, whose objects it has not listed", c.n.ID, s)
			continue
		}
		for i := range keysPerSlot {
			k := key{s, i}
			of, sees := &o.of[k.index()], in.sees(k)
			if of.seen > sees && of.seenBy != c.n {
				c.w.violateAtGate("stale open", "%s opens slot %v and sees version %d of %v; %s has reconciled version %d",
					c.n.ID, s, sees, k, of.seenBy.ID, of.seen)
			}
			if was := o.asOf(k.index(), c.present[s]).Version; was > sees {
				c.w.violate("stale open", "%s opens slot %v and sees version %d of %v; it was at %d when that was to be loaded",
					c.n.ID, s, sees, k, was)
			}
			if of.wrote > sees && of.wroteBy != c.n {
				c.w.violateAtGate("stale open", "%s opens slot %v and sees version %d of %v; %s wrote version %d",
					c.n.ID, s, sees, k, of.wroteBy.ID, of.wrote)
			}
		}
		for _, was := range o.removed {
			has := in.Has[was.Name]
			if was.by != nil && was.by != c.n && was.Slot == s && has.Exists && has.UID == was.UID && has.Slot == s {
				c.w.violateAtGate("stale open", "%s opens slot %v with %v, which %s has deleted", c.n.ID, s, has, was.by.ID)
			}
		}
		in.checkShown(s, c.present[s], "opens")
	}
}
