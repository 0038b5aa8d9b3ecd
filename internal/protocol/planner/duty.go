package planner

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file implements what is special about duties (rule R18). In the table a duty is a slot, so all other rules apply
// to it.

// suspension is how long members announce no duties after they saw a process that wants to join and does not read
// table.DutyFormat. Its container is restarted within five minutes.
const suspension = rolloutTime

// olderAgain is the time between two changes of Table.Older.
const olderAgain = time.Minute

// suspended reports whether members announce no duties, so that a process that does not read table.DutyFormat can join.
func (p *proposer) suspended(t *table.Table) bool { return suspended(t, p.Wall) }

func suspended(t *table.Table, wall int64) bool {
	return t.Older != 0 && clockDistance(wall, t.Older) < int64(suspension.Seconds())
}

// Suspends reports whether the run is a duty's, and duties are suspended at the time wall.
func Suspends(t *table.Table, r table.Run, wall int64) bool {
	return t.IsDuty(r.Slots.First) && suspended(t, wall)
}

// duties returns the duties that this member should announce in the table. With noDuties it leaves out those that the
// table has no room for.
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
	for _, own := range []bool{false, true} { // the rota's own duties work unannounced
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

// able returns the slots of the set that the member can own.
func able(t *table.Table, member table.Member, set slot.Set) slot.Set {
	can := t.Can()
	for _, s := range set.Slots() {
		if !can(member, s) {
			set.Remove(s)
		}
	}
	return set
}

// announce adds this member's duties to the table, or removes them. A planner records that another process does not
// read table.DutyFormat.
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
	p.notice("DutiesSuspended", true, "process %s wants to join and is too old to read duties in the table, as in the "+
		"rollback of a release: duties stop until %v after such a process was last seen", id, suspension)
}

// unownedDuty reports whether the table has a duty without an owner.
func unownedDuty(t *table.Table) bool {
	return slices.ContainsFunc(t.Runs, func(r table.Run) bool { return r.Owner == "" && t.Duty(r.Slots.First) != "" })
}
