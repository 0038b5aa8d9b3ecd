package planner

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file computes plans that a member does not propose: for `rota rebalance`, and for prefetching.

// Rebalance returns the table after the moves that planners would begin now if there were no rollout and all members
// had joined long ago. It is the planners' own plan (rule R17), so members that are on probation or drained get
// nothing. It begins no moves of slots that have no owner or already move, and none from members that leave: planners
// do these anyway. During a pause it begins none. wall is the time in Unix seconds. reports are the members' reports.
// If all members report that they plan by load, so does Rebalance (rule R21), at once and with as many moves as needed.
// It returns an error if some members report so and others do not.
//
// All members must renew their Leases. The result is t itself if there is nothing to move. Its epoch is the one after
// t's.
func Rebalance(t *table.Table, wall int64, reports []LoadReport) (*table.Table, error) {
	byLoad, err := plansByLoad(t, reports)
	if err != nil {
		return t, err
	}
	// The proposer is a planner that is not a member.
	p := newProposer(View{Config: &Config{ByLoad: byLoad}, Local: allRenew{}, Wall: wall, Table: t, Phase: Joined})
	fit, hold := p.fit(nil)
	receives := func(other table.Member) bool { return fit[other.ID] }
	if byLoad && !hold {
		p.loads.believe(t, reports)
		owners, evened := p.evenOut(fit, int(t.Slots), false)
		p.loads.moves = movesTo(owners, evened)
	}
	target := p.assign(t, p.assignment(t, nil, receives, false, hold), hold)
	eachSlot(t, func(r table.Run) bool { return r.Owner == "" }, func(s slot.Slot, _ table.Run) { target[s] = "" })
	d := &draft{next: t}
	p.apply(d, nil, target)
	if !d.own {
		return t, nil
	}
	d.next.Seal(t.Epoch + 1)
	return d.next, nil
}

// allRenew implements Local for a process that owns no slots while all members renew their Leases.
type allRenew struct{}

func (allRenew) Dead(string) bool               { return false }
func (allRenew) Renewing(string) bool           { return true }
func (allRenew) OnTime(string) bool             { return true }
func (allRenew) Seen(string) bool               { return true }
func (allRenew) Alive(string) bool              { return true }
func (allRenew) TooOld(int) string              { return "" }
func (allRenew) WritesEnd(string) time.Duration { return 0 }
func (allRenew) MemoryOf(string) MemoryReport   { return MemoryReport{} }
func (allRenew) Slot(slot.Slot) Slot            { return Slot{} }

// Guess returns the owners of all slots as a planner would choose them if the silent members were dead.
func Guess(v View, silent []string) []string {
	p, t := newProposer(v), v.Table
	receives := func(other table.Member) bool {
		return !slices.Contains(silent, other.ID) && !p.onProbation(other) && !t.Drained(other.ID)
	}
	return p.assign(t, p.assignment(t, silent, receives, p.rollout(), t.Paused()), t.Paused())
}

// AwaitsPlan reports whether this member has joined and waits for its share, so that it can guess it. It reports false
// in a rollout, since the plan will have changed by then, while moves are paused, while no slot has an owner, since
// many members join at that time, and if slots are planned by load, which the member does not know.
func AwaitsPlan(v View) bool {
	owned := false
	for _, r := range v.Table.Runs {
		if r.Owner == v.Self.ID || r.Next == v.Self.ID {
			return false
		}
		owned = owned || r.Owner != ""
	}
	return owned && !mixed(v.Table) && !v.Table.Paused() && !v.ByLoad
}
