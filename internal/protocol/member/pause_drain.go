package member

import (
	"slices"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file has what people ask of the members by the table: to pause moves, and to drain a member (rule R19).

// draftOrders ends what people asked for where it must end: all of it if a process wants to join that cannot read of
// it, and the mark of a member that was expelled and whose container did not come back. A planner does so.
func (m *Member) draftOrders(t *table.Table, d *draft) {
	rank := m.rank()
	if m.phase != joined || rank < 0 || !t.Ordered() {
		m.plan.orders = 0
		return
	}
	_, older := m.olderJoiner(t, table.OrderFormat)
	lost := slices.DeleteFunc(slices.Clone(t.Drains), func(g table.Drain) bool {
		return g.Lost == 0 || m.clockDistance(g.Lost) < int64(crashMemory.Seconds())
	})
	if !m.waited(&m.plan.orders, older || len(lost) > 0, headStart(rank, m.cfg.RetryPeriod)) {
		return
	}
	d.due = true
	if older {
		d.edit().DropOrders()
		return
	}
	for _, g := range lost {
		d.edit().DropDrain(g.ID)
	}
}

// noteOrders reports that orders end with this change because a process cannot read of them.
func (m *Member) noteOrders(t, next *table.Table) {
	if !t.Ordered() || next.Ordered() || len(next.Members) == 0 {
		return
	}
	id, older := m.olderJoiner(t, table.OrderFormat)
	if !older {
		return
	}
	m.note("OrdersEnded", true, "process %s wants to join and is too old to read that moves are paused or members are "+
		"drained, as in the rollback of a release: moves go on, and drained members get slots again", id)
}

// unwanted says that the move of a run goes to a drained member. A leaver has nobody else.
func (m *Member) unwanted(t *table.Table, r table.Run) bool {
	return m.phase != leaving && t.Drained(r.Next)
}

// drains says that a plan takes everything from a member because it is drained.
func (m *Member) drains(t *table.Table, p plan.Member) bool {
	return m.phase == joined && p.Leaves && t.Drained(p.ID)
}

// dutiesOfDrained returns the owners for a plan, and what moves, without the duties of drained members that others can
// do. Those that nobody else can do stay (rule R19).
func (m *Member) dutiesOfDrained(
	t *table.Table, in plan.Input, owners []string, takers []plan.Member, can func(member, duty int) bool,
) ([]string, slot.Set) {
	drained := map[string]bool{}
	for _, p := range in.Members {
		if m.drains(t, p) {
			drained[p.ID] = true
		}
	}
	if len(drained) == 0 {
		return owners, in.Moving
	}
	owners = slices.Clone(owners)
	moving := in.Moving.Union(slot.Set{})
	for i := range t.Duties {
		s := slot.Slot(int(t.Slots) + i)
		if !drained[owners[s]] {
			continue
		}
		moving.Add(s)
		for j, p := range takers {
			if !drained[p.ID] && p.Receives && can(j, i) {
				owners[s] = ""
				moving.Remove(s)
				break
			}
		}
	}
	return owners, moving
}
