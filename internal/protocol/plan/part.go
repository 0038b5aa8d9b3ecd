package plan

import (
	"slices"

	"github.com/rota-dev/rota/slot"
)

// Part is some of the slots, and which members may own them.
type Part struct {
	Slots slot.Set
	// Has says which members those are. The others give their slots of this part up, and get none of them.
	Has func(id string) bool
	// Pins are parts of this one, without common slots, which fewer members still may own. A pin of which no member
	// receives counts for nothing, but those of its members that do not leave keep what they have: they are only slow, and
	// would get it again.
	Pins []Part
}

// receives says that a member of a part receives.
func (p Part) receives(members []Member) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return m.Receives && !m.Leaves && p.Has(m.ID) })
}

// kept are the slots that members of a part have, unless they leave.
func (p Part) kept(in Input) (kept slot.Set) {
	for _, s := range p.Slots.Slots() {
		if slices.ContainsFunc(in.Members, func(m Member) bool { return m.ID == in.Owners[s] && !m.Leaves && p.Has(m.ID) }) {
			kept.Add(s)
		}
	}
	return kept
}

// AssignParts assigns each part by itself, with assign, which is Assign or AssignByLoad. The parts have no common
// slots; slots of no part stay as they are. Of each part a member receives, but where no member receives at all. stays
// says of members whose slots are all among Input.Moving that they keep them, although they may not own them.
//
// In each part, members have equal shares of all of its slots, pinned ones included.
func AssignParts(
	in LoadInput, parts []Part, stays func(id string) bool, assign func(LoadInput) ([]string, slot.Set),
) (owners []string, evened slot.Set) {
	owners = slices.Clone(in.Owners)
	for _, part := range parts {
		of := in
		of.Owners = slices.Clone(in.Owners)
		for _, pin := range part.Pins {
			if !pin.receives(in.Members) {
				of.Moving = of.Moving.Union(pin.kept(in.Input))
				continue
			}
			moved := assignPart(of, pin, stays, assign, of.Owners)
			evened = evened.Union(moved)
			of.Moving = of.Moving.Union(pin.Slots) // so they stay, and count
		}
		moved := assignPart(of, part, stays, assign, owners)
		evened = evened.Union(moved)
	}
	return owners, evened
}

// assignPart assigns the slots of a part alone, into owners.
func assignPart(
	in LoadInput, part Part, stays func(id string) bool, assign func(LoadInput) ([]string, slot.Set), owners []string,
) (evened slot.Set) {
	all := part.Slots.Slots()
	sub := in
	sub.Owners, sub.Moving, sub.Load, sub.Resting = make([]string, len(all)), slot.Set{}, nil, slot.Set{}
	for i, s := range all {
		sub.Owners[i] = in.Owners[s]
		if in.Moving.Has(s) {
			sub.Moving.Add(slot.Slot(i))
		}
		if in.Resting.Has(s) {
			sub.Resting.Add(slot.Slot(i))
		}
		if in.Load != nil {
			sub.Load = append(sub.Load, in.Load[s])
		}
	}
	sub.Members = slices.Clone(in.Members)
	for i := range sub.Members {
		m := &sub.Members[i]
		if !part.Has(m.ID) {
			m.Receives = false
			m.Leaves = m.Leaves || !stays(m.ID)
		}
	}
	assigned, moved := assign(sub)
	for i, s := range all {
		owners[s] = assigned[i]
		if moved.Has(slot.Slot(i)) {
			evened.Add(s)
		}
	}
	return evened
}
