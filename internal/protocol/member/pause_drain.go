package member

import (
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file has what people ask of the members by the table: to pause moves, and to drain a member (rule R19).

// draftOrders ends what people asked for where it must end: what a process cannot read of that wants to join, and the
// mark of a member that was expelled and whose container did not come back. A planner does so.
func (m *Member) draftOrders(t *table.Table, d *draft) {
	rank := m.rank()
	if m.phase != joined || rank < 0 || !t.Ordered() {
		m.plan.orders = 0
		return
	}
	_, format := m.unreadable(t)
	lost := slices.DeleteFunc(slices.Clone(t.Drains), func(g table.Drain) bool {
		return g.Lost == 0 || m.clockDistance(g.Lost) < int64(crashMemory.Seconds())
	})
	if !m.waited(&m.plan.orders, format > 0 || len(lost) > 0, headStart(rank, m.cfg.RetryPeriod)) {
		return
	}
	d.due = true
	if format > 0 {
		d.edit().DropOrders(format)
	}
	for _, g := range lost {
		d.edit().DropDrain(g.ID)
	}
}

// unreadable returns a process that wants to join and does not read the table because of orders, and the lowest format
// that it does not read of theirs; 0: there is none.
func (m *Member) unreadable(t *table.Table) (id string, format int) {
	for _, format := range []int{table.OrderFormat, table.PlaceFormat} {
		if id, older := m.olderJoiner(t, format); older && t.Needs() >= format {
			return id, format
		}
	}
	return "", 0
}

// noteOrders reports that orders end with this change because a process cannot read of them.
func (m *Member) noteOrders(t, next *table.Table) {
	id, format := m.unreadable(t)
	if format == 0 || !t.Ordered() || next.Needs() >= t.Needs() || len(next.Members) == 0 {
		return
	}
	what := "that moves are paused or members are drained, as in the rollback of a release: moves go on, and drained " +
		"members get slots again"
	if t.Needs() >= table.PlaceFormat {
		var pins []string
		for _, p := range t.Pins {
			pins = append(pins, p.Object+" to "+p.Labels)
		}
		what = "of what people asked for, as in the rollback of a release. What ends with that: "
		if t.Canary.On() {
			what += "the canary of build " + t.Canary.Build + "; "
		}
		if len(pins) > 0 {
			what += "pins (" + strings.Join(pins[:min(len(pins), maxNamedPins)], ", ") + "); "
		}
		if format == table.OrderFormat {
			what += "pauses and drained members; "
		}
		what += "ask for it again when all members are of a newer one"
	}
	m.note("OrdersEnded", true, "process %s wants to join and is too old to read %s", id, what)
}

// maxNamedPins is how many pins a message names.
const maxNamedPins = 10

// unwanted says that the move of a run goes to a drained member. A leaver has nobody else.
func (m *Member) unwanted(t *table.Table, r table.Run) bool {
	return m.phase != leaving && t.Drained(r.Next)
}

// dutiesToYield returns the owners for a plan, and what moves, without the duties that others can do of members that
// are drained or set apart with a canary. Those that nobody else can do stay (rule R19).
func (m *Member) dutiesToYield(
	t *table.Table, in plan.Input, owners []string, takers []plan.Member, can func(member, duty int) bool, hold bool,
) ([]string, slot.Set) {
	yield := map[string]bool{}
	for _, p := range in.Members {
		if m.yields(t, p, hold) {
			yield[p.ID] = true
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
		for j, p := range takers {
			if !yield[p.ID] && p.Receives && can(j, i) {
				owners[s] = ""
				moving.Remove(s)
				break
			}
		}
	}
	return owners, moving
}
