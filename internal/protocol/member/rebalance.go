package member

import (
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Rebalance returns the table in which the moves have begun that planners would begin now if no rollout was under way,
// and if all members had been there for long. It is the planners' own plan (rule R17), so that members that are on
// probation or drained get nothing. It begins no moves of slots that nobody owns, or that move already, and none away
// from members that leave: that is planned without being asked for. With a pause it begins none. wall is the time in
// Unix seconds. loads are what members report. If all report that they plan by load, so does this (rule R21), without
// its patience and with as many moves as it takes. The error says that some report so and others do not.
//
// All members must renew their Leases. The result is t itself if there is nothing to move. It is sealed with the epoch
// after that of t.
func Rebalance(t *table.Table, wall int64, loads []LoadReport) (*table.Table, error) {
	cfg := Config{Slots: t.Slots, Key: t.Key}
	cfg.SetDefaults()
	m := New(cfg) // a planner that is no member
	m.phase, m.now.Wall = joined, wall
	for _, entry := range t.Members {
		m.watch.others[entry.ID] = &other{}
	}
	fit, hold := m.fit(t, nil)
	receives := func(other table.Member) bool { return fit[other.ID] }
	var err error
	if m.cfg.ByLoad, err = plansByLoad(t, loads); err != nil {
		return t, err
	}
	if m.cfg.ByLoad && !hold {
		m.balance.believe(t, loads)
		owners, evened := m.evenOut(t, fit, int(t.Slots), false)
		m.balance.moves = movesTo(owners, evened)
	}
	target := m.assign(t, m.assignment(t, t, nil, receives, false, hold), hold)
	eachSlot(t, func(r table.Run) bool { return r.Owner == "" }, func(s slot.Slot, _ table.Run) { target[s] = "" })
	d := &draft{next: t}
	m.applyPlan(t, d, nil, target)
	if !d.own {
		return t, nil
	}
	d.next.Seal(t.Epoch + 1)
	return d.next, nil
}
