package member

import (
	"slices"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file has who may own which slots, where people ask for that: those of a canary, and pinned ones (rule R22). It
// is a matter of plans alone. Where nobody is there who may, others have the slots.

// assignSlots returns the next owners of the slots that are not duties'. hold says that slots of live members stay
// where they are.
func (m *Member) assignSlots(t *table.Table, in plan.Input, hold bool) []string {
	assign := func(in plan.LoadInput) ([]string, slot.Set) { return plan.Assign(in.Input), slot.Set{} }
	all := plan.LoadInput{Input: in}
	byLoad := m.cfg.ByLoad && !m.balance.differs
	if byLoad {
		all, assign = m.byLoad(in), plan.AssignByLoad
	}
	owners, _ := m.assignPlaces(t, all, hold, assign)
	if byLoad {
		m.addMoves(in, owners)
	}
	return owners
}

// assignPlaces assigns slots to members that may own them.
func (m *Member) assignPlaces(
	t *table.Table, in plan.LoadInput, hold bool, assign func(plan.LoadInput) ([]string, slot.Set),
) (owners []string, evened slot.Set) {
	stays := func(id string) bool {
		owner, _ := t.Member(id)
		return hold || m.phase != leaving && owner.Leaving // leavers plan for themselves
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
		return slices.ContainsFunc(in.Members, func(p plan.Member) bool {
			return p.Receives && !p.Leaves && ofBuild(t, p.ID) == canary
		})
	}
	canary := plan.Part{Slots: mine, Has: func(id string) bool { return ofBuild(t, id) }}
	others := plan.Part{Slots: all.Slots.Minus(mine), Has: func(id string) bool { return !ofBuild(t, id) }}
	switch back := t.Canary.State == table.CanaryBack; {
	case !receives(false), !receives(true) && !back:
		// Others are better than none. But those that are only slow keep what they have: they would get it again.
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

// ofBuild says that a member is of the canary's build.
func ofBuild(t *table.Table, id string) bool {
	other, ok := t.Member(id)
	return ok && other.Build == t.Canary.Build
}

// pinParts returns a part for all slots that are pinned to the same labels, in their order.
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

// withPins has the pins in each of the parts.
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

// yields says that a member has a duty only if nobody else can do it: it is drained, or set apart with a canary.
func (m *Member) yields(t *table.Table, p plan.Member, hold bool) bool {
	if hold {
		return false
	}
	owner, _ := t.Member(p.ID)
	return m.phase == joined && p.Leaves && t.Drained(p.ID) || t.Apart(owner)
}

// draftLabels announces this member's labels while there are pins.
func (m *Member) draftLabels(d *draft) {
	if m.phase != joined {
		return
	}
	self, _ := d.next.Member(m.cfg.Self.ID)
	want := m.labels(d.next)
	if m.waited(&m.swap.label, self.Labels != want, m.cfg.Coalesce) {
		self.Labels = want
		d.edit().Put(self)
		d.due = true
	}
}

// labels are those that this member should have in the table.
func (m *Member) labels(t *table.Table) string {
	if len(t.Pins) == 0 || !t.Reads(table.PlaceFormat) || m.cfg.Self.MaxFormat < table.PlaceFormat {
		return ""
	}
	return m.cfg.Self.Labels
}
