package plan

import (
	"slices"

	"github.com/rota-dev/rota/slot"
)

// Part is a set of slots with the members that may own them.
type Part struct {
	Slots slot.Set
	// Has reports whether a member may own them. The other members give up their slots of this part, and get none of them.
	Has func(id string) bool
	// Pins are disjoint subsets of this part that fewer members may own. A pin is ignored if none of its members receives.
	// But its members that do not leave keep their slots: they are only slow, and would get them again.
	Pins []Part
}

// receives reports whether a member of the part receives.
func (p Part) receives(members []Member) bool {
	return slices.ContainsFunc(members, func(m Member) bool { return m.Receives && !m.Leaves && p.Has(m.ID) })
}

// kept returns the slots that members of the part own, unless they leave.
func (p Part) kept(in Input) (kept slot.Set) {
	for _, s := range p.Slots.Slots() {
		if slices.ContainsFunc(in.Members, func(m Member) bool { return m.ID == in.Owners[s] && !m.Leaves && p.Has(m.ID) }) {
			kept.Add(s)
		}
	}
	return kept
}

// AssignParts assigns each part separately with assign, which is Assign or AssignByLoad. The parts are disjoint. Slots
// outside all parts stay as they are. A member of each part must receive, unless no member receives at all. stays
// reports whether a member whose slots are all in Input.Moving keeps them although it may not own them.
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

// assignPart assigns the slots of one part, and writes the result to owners.
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
