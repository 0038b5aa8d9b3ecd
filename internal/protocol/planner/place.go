package planner

import (
	"slices"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file decides which members may own the slots of a canary and pinned slots (rule R22). It affects only plans. If
// none of these members can own a slot, the others do.

// assign returns the next owners of all slots: hash slots by assignSlots, duties by plan.AssignDuties. in describes
// both. With hold, slots of live members stay where they are.
func (p *proposer) assign(t *table.Table, in plan.Input, hold bool) []string {
	owners := in.Owners
	in.Owners = owners[:t.Slots]
	target := p.assignSlots(t, in, hold)
	if len(t.Duties) == 0 {
		return target
	}
	if p.suspended(t) {
		return append(target, make([]string, len(t.Duties))...)
	}
	takers, can := p.takers(t, in.Members, owners, hold)
	owners, in.Moving = p.dutiesToYield(t, in, owners, takers, can, hold)
	out := make([]string, len(t.Duties))
	for _, kind := range dutyKinds(t) {
		duties := plan.DutyInput{Members: takers, Tolerant: in.Tolerant, Only: in.Only}
		for _, i := range kind {
			duties.Owners = append(duties.Owners, owners[int(t.Slots)+i])
			duties.Moving = append(duties.Moving, in.Moving.Has(slot.Slot(int(t.Slots)+i)))
		}
		duties.Can = func(member, duty int) bool { return can(member, kind[duty]) }
		for i, owner := range plan.AssignDuties(duties) {
			out[kind[i]] = owner
		}
	}
	return append(target, out...)
}

// assignSlots returns the next owners of hash slots. With hold, slots of live members stay where they are.
func (p *proposer) assignSlots(t *table.Table, in plan.Input, hold bool) []string {
	assign := func(in plan.LoadInput) ([]string, slot.Set) { return plan.Assign(in.Input), slot.Set{} }
	all := plan.LoadInput{Input: in}
	byLoad := p.ByLoad && !p.loads.differs
	if byLoad {
		all, assign = p.byLoad(in), plan.AssignByLoad
	}
	owners, _ := p.assignPlaces(t, all, hold, assign)
	if byLoad {
		p.addMoves(in, owners)
	}
	return p.fitMemory(t, in, owners)
}

// assignPlaces assigns slots to members that may own them.
func (p *proposer) assignPlaces(
	t *table.Table, in plan.LoadInput, hold bool, assign func(plan.LoadInput) ([]string, slot.Set),
) (owners []string, evened slot.Set) {
	stays := func(id string) bool {
		owner, _ := t.Member(id)
		return hold || p.Phase != Leaving && owner.Leaving // leavers plan their own moves
	}
	all := plan.Part{Slots: t.Slots.All(), Has: func(string) bool { return true }}
	pins := pinParts(t)
	parts := []plan.Part{all}
	if !t.Canary.On() {
		return plan.AssignParts(in, withPins(parts, pins), stays, assign)
	}
	var mine slot.Set // of the canary's build
	if t.Canary.State == table.CanaryPromoted {
		wanted, _ := plan.AssignParts(in, withPins(parts, pins), stays, assign)
		for s, to := range wanted {
			if ofBuild(t, in.Owners[s]) || ofBuild(t, to) {
				mine.Add(slot.Slot(s))
			}
		}
	} else {
		mine = t.CanarySlots()
	}
	receives := func(canary bool) bool {
		return slices.ContainsFunc(in.Members, func(other plan.Member) bool {
			return other.Receives && !other.Leaves && ofBuild(t, other.ID) == canary
		})
	}
	canary := plan.Part{Slots: mine, Has: func(id string) bool { return ofBuild(t, id) }}
	others := plan.Part{Slots: all.Slots.Minus(mine), Has: func(id string) bool { return !ofBuild(t, id) }}
	switch back := t.Canary.State == table.CanaryBack; {
	case !receives(false), !receives(true) && !back:
		// Without such members, others get the slots. But members that are only slow keep theirs: they would get them again.
		var kept slot.Set
		for s, id := range in.Owners {
			if _, there := t.Member(id); there && !receives(ofBuild(t, id)) {
				kept.Add(slot.Slot(s))
			}
		}
		in.Moving = in.Moving.Union(kept)
		for i := range pins {
			pins[i].Slots = pins[i].Slots.Minus(kept)
		}
	case back:
		parts = []plan.Part{others}
	default:
		parts = []plan.Part{canary, others}
	}
	return plan.AssignParts(in, withPins(parts, pins), stays, assign)
}

// ofBuild reports whether a member belongs to the canary's build.
func ofBuild(t *table.Table, id string) bool {
	other, ok := t.Member(id)
	return ok && other.Build == t.Canary.Build
}

// pinParts returns a part for each set of labels in the pins, ordered by labels.
func pinParts(t *table.Table) (parts []plan.Part) {
	if len(t.Pins) == 0 {
		return nil
	}
	by := map[string]*slot.Set{}
	for s, labels := range t.PinsBySlot() {
		if by[labels] == nil {
			by[labels] = &slot.Set{}
		}
		by[labels].Add(s)
	}
	for _, labels := range sortedKeys(by) {
		parts = append(parts, plan.Part{Slots: *by[labels], Has: func(id string) bool {
			other, ok := t.Member(id)
			return ok && table.HasLabels(other.Labels, labels)
		}})
	}
	return parts
}

// withPins adds the pins to each of the parts.
func withPins(parts, pins []plan.Part) []plan.Part {
	for i := range parts {
		of := &parts[i]
		of.Pins = nil
		for _, pin := range pins {
			has := pin.Has
			one := plan.Part{Slots: pin.Slots.Intersect(of.Slots), Has: func(id string) bool { return of.Has(id) && has(id) }}
			if !one.Slots.Empty() {
				of.Pins = append(of.Pins, one)
			}
		}
	}
	return parts
}

// plain returns the members that take part in a rollout: those that no canary sets apart.
func plain(t *table.Table) []table.Member {
	if !t.Canary.On() {
		return t.Members
	}
	return slices.DeleteFunc(slices.Clone(t.Members), t.Apart)
}

// dutyKinds returns the duties, by index, in two groups: users' duties and the rota's own. Each group is spread evenly
// on its own. So of two users' duties each of two members gets one, however many of the rota's own it has.
func dutyKinds(t *table.Table) [2][]int {
	var out [2][]int
	for i, name := range t.Duties {
		kind := 0
		if table.OwnDuty(name) {
			kind = 1
		}
		out[kind] = append(out[kind], i)
	}
	return out
}

// Ranks of members for a duty. Of the members that can do it, those of the lowest rank may get it.
const (
	takesSlots   = iota // it also gets slots
	takesOnly           // it is within its JoinDelay or on probation (rule R9), which does not matter for duties
	yieldsSlots         // it gets slots, and yields duties; see yields
	yieldsOnly          // it gets no slots, and yields duties
	takesNothing        // it is late, or leaves
	takerRanks   = takesNothing
)

// takers returns the members for duties, and a function that reports which of them may get which duty. A leaver
// considers only members that receive slots. Members that yield duties get none that is owned by a member that is only
// late.
func (p *proposer) takers(
	t *table.Table, given []plan.Member, owners []string, hold bool,
) (takers []plan.Member, can func(member, duty int) bool) {
	able := make([]slot.Set, len(given)) // what each member can do
	rank := make([]int, len(given))
	var done [takerRanks]slot.Set // by members of each rank
	of := t.DutiesOf()
	takers = slices.Clone(given)
	for i, other := range given {
		entry, _ := t.Member(other.ID)
		able[i] = of(entry)
		yields := p.yields(t, other, hold)
		takers[i].Receives = other.Receives || p.takesDuties(entry)
		takers[i].Leaves = other.Leaves && !yields
		switch {
		case !takers[i].Receives:
			rank[i] = takesNothing
		case yields && other.Receives:
			rank[i] = yieldsSlots
		case yields:
			rank[i] = yieldsOnly
		case !other.Receives:
			rank[i] = takesOnly
		}
		if rank[i] < takesNothing {
			done[rank[i]] = done[rank[i]].Union(able[i])
		}
		if !yields && !entry.Leaving {
			for d := range t.Duties {
				if s := slot.Slot(int(t.Slots) + d); owners[s] == other.ID {
					done[takesOnly].Add(s)
				}
			}
		}
	}
	return takers, func(member, duty int) bool {
		s := slot.Slot(int(t.Slots) + duty)
		best := slices.IndexFunc(done[:], func(set slot.Set) bool { return set.Has(s) })
		return able[member].Has(s) && rank[member] == best
	}
}

// takesDuties reports whether a member may get a duty that no other member can do.
func (p *proposer) takesDuties(other table.Member) bool {
	onTime := other.ID == p.Self.ID || p.OnTime(other.ID)
	return p.Phase == Joined && onTime && !other.Leaving && !p.Dead(other.ID)
}

// dutiesToYield returns the owners and moving slots for a plan. It takes from members that are drained or set apart by
// a canary the duties that others can do. The duties that no other member can do stay (rule R19).
func (p *proposer) dutiesToYield(
	t *table.Table, in plan.Input, owners []string, takers []plan.Member, can func(member, duty int) bool, hold bool,
) ([]string, slot.Set) {
	yield := map[string]bool{}
	for _, other := range in.Members {
		if p.yields(t, other, hold) {
			yield[other.ID] = true
		}
	}
	if len(yield) == 0 {
		return owners, in.Moving
	}
	owners = slices.Clone(owners)
	moving := in.Moving.Union(slot.Set{})
	for i := range t.Duties {
		s := slot.Slot(int(t.Slots) + i)
		if !yield[owners[s]] {
			continue
		}
		moving.Add(s)
		for j, other := range takers {
			if !yield[other.ID] && other.Receives && can(j, i) {
				owners[s] = ""
				moving.Remove(s)
				break
			}
		}
	}
	return owners, moving
}

// yields reports whether a member has a duty only if no other member can do it: it is drained, or set apart by a
// canary.
func (p *proposer) yields(t *table.Table, other plan.Member, hold bool) bool {
	if hold {
		return false
	}
	entry, _ := t.Member(other.ID)
	return p.Phase == Joined && other.Leaves && t.Drained(other.ID) || t.Apart(entry)
}
