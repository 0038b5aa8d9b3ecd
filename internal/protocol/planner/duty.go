package planner

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file has what is different for duties (rule R18). In the table a duty is a slot, so that all other rules hold
// for it as they are.

// suspension is how long members announce no duties after a process was seen that wants to join and cannot read of
// them. Its container is started again within five minutes.
const suspension = rolloutTime

// olderAgain is the time between two changes of Table.Older.
const olderAgain = time.Minute

// suspended is true while members announce no duties, so that a process can join that cannot read of them.
func (p *proposer) suspended(t *table.Table) bool { return suspended(t, p.Wall) }

func suspended(t *table.Table, wall int64) bool {
	return t.Older != 0 && clockDistance(wall, t.Older) < int64(suspension.Seconds())
}

// Suspends is true if the run is a duty's, and duties are suspended at the time wall.
func Suspends(t *table.Table, r table.Run, wall int64) bool {
	return t.IsDuty(r.Slots.First) && suspended(t, wall)
}

// duties are the duties that this member should announce in the table. With noDuties it leaves out those for which
// there is no room.
func (p *proposer) duties(t *table.Table, out leftOut) string {
	if !t.Reads(table.DutyFormat) || p.Self.MaxFormat < table.DutyFormat || p.suspended(t) {
		return ""
	}
	if !out.noDuties {
		return p.Self.Duties
	}
	room := slot.MaxDuties - len(t.Duties)
	for _, name := range t.Duties {
		if name == "" {
			room++
		}
	}
	if t.Size(p.MaxTable) > p.MaxTable/4*3 {
		room = 0
	}
	var names []string
	for _, own := range []bool{false, true} { // the rota's own are also done without
		for name := range p.Self.DutyNames() {
			if table.OwnDuty(name) != own {
				continue
			}
			if _, known := t.DutySlot(name); !known {
				if room <= 0 {
					continue
				}
				room--
			}
			names = append(names, name)
		}
	}
	return table.JoinDuties(names...)
}

// able returns those of the slots that the member can have.
func able(t *table.Table, member table.Member, set slot.Set) slot.Set {
	can := t.Can()
	for _, s := range set.Slots() {
		if !can(member, s) {
			set.Remove(s)
		}
	}
	return set
}

// announce names this member's duties in the table, or takes them back once it has none. A planner writes down that
// another process cannot read of duties.
func (p *proposer) announce(d *draft) {
	if p.Phase != Joined {
		return
	}
	t := p.Table
	if p.Rank >= 0 && (len(t.Duties) > 0 || p.suspended(t)) && p.clockDistance(t.Older) >= int64(olderAgain.Seconds()) {
		if id := p.TooOld(table.DutyFormat); id != "" {
			p.noticeOlder(id)
			d.edit().Older = p.Wall
			d.due = true
		}
	}
	self, _ := d.next.Member(p.Self.ID)
	want := p.duties(d.next, d.leftOut)
	change := self.Duties != want
	if change && want == "" {
		busy := func(r table.Run) bool { return t.IsDuty(r.Slots.First) && (r.Owner == self.ID || r.Next == self.ID) }
		change = !slices.ContainsFunc(d.next.Runs, busy)
	}
	if !p.waited(&p.delays.announce, change, p.Coalesce) {
		return
	}
	self.Duties = want
	d.edit().Put(self)
	d.due = true
}

// noticeOlder reports that duties are suspended, unless they were before.
func (p *proposer) noticeOlder(id string) {
	if p.suspended(p.Table) {
		return
	}
	p.notice("DutiesSuspended", true, "process %s wants to join and is too old to know of duties in the table, as in the "+
		"rollback of a release: duties stop until %v after such a process was last seen", id, suspension)
}

// unownedDuty is true if the table has a duty without an owner.
func unownedDuty(t *table.Table) bool {
	return slices.ContainsFunc(t.Runs, func(r table.Run) bool { return r.Owner == "" && t.Duty(r.Slots.First) != "" })
}
