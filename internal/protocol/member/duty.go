package member

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/plan"
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

// suspended says that members announce no duties, so that a process can join that cannot read of them.
func (m *Member) suspended(t *table.Table) bool {
	return t.Older != 0 && m.clockDistance(t.Older) < int64(suspension.Seconds())
}

// suspends says that the run is of a duty, and duties are suspended.
func (m *Member) suspends(t *table.Table, r table.Run) bool {
	return t.IsDuty(r.Slots.First) && m.suspended(t)
}

// announced are the duties that this member should announce in the table. With noDuties it leaves out those for which
// there is no room.
func (m *Member) announced(t *table.Table, out leftOut) string {
	if !t.Reads(table.DutyFormat) || m.cfg.Self.MaxFormat < table.DutyFormat || m.suspended(t) {
		return ""
	}
	if !out.noDuties {
		return m.cfg.Self.Duties
	}
	room := slot.MaxDuties - len(t.Duties)
	for _, name := range t.Duties {
		if name == "" {
			room++
		}
	}
	if t.Size(m.cfg.MaxTable) > m.cfg.MaxTable/4*3 {
		room = 0
	}
	var names []string
	for _, own := range []bool{false, true} { // the rota's own are also done without
		for name := range m.cfg.Self.DutyNames() {
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

// dutiesIn returns the names of the duties among the slots; nil if there are none.
func dutiesIn(t *table.Table, set slot.Set) map[slot.Slot]string {
	var names map[slot.Slot]string
	for i, name := range t.Duties {
		if s := slot.Slot(int(t.Slots) + i); name != "" && set.Has(s) {
			if names == nil {
				names = map[slot.Slot]string{}
			}
			names[s] = name
		}
	}
	return names
}

// draftDuties announces this member's duties, or takes the announcement back once it has none. A planner notes that
// another process cannot read of duties.
func (m *Member) draftDuties(t *table.Table, d *draft) {
	if m.phase != joined {
		return
	}
	if id, older := m.withoutDuties(t); older && m.isPlanner() {
		if m.clockDistance(t.Older) >= int64(olderAgain.Seconds()) {
			m.noteOlder(t, id)
			d.edit().Older = m.now.Wall
			d.due = true
		}
	}
	self, _ := d.next.Member(m.cfg.Self.ID)
	want := m.announced(d.next, d.leftOut)
	change := self.Duties != want
	if change && want == "" {
		busy := func(r table.Run) bool { return t.IsDuty(r.Slots.First) && (r.Owner == self.ID || r.Next == self.ID) }
		change = !slices.ContainsFunc(d.next.Runs, busy)
	}
	if !m.waited(&m.swap.announce, change, m.cfg.Coalesce) {
		return
	}
	self.Duties = want
	d.edit().Put(self)
	d.due = true
}

// noteOlder reports that duties are suspended, unless they were before.
func (m *Member) noteOlder(t *table.Table, id string) {
	if m.suspended(t) {
		return
	}
	m.note("DutiesSuspended", true, "process %s wants to join and is too old to know of duties in the table, as in the "+
		"rollback of a release: duties stop until %v after such a process was last seen", id, suspension)
}

// olderLease says that a Lease is that of a process which does not read the newest format, and sees no table that it
// could go by.
func olderLease(l Lease) bool { return l.Format < table.Format && l.Epoch == 0 && l.TableUID == "" }

// withoutDuties returns a process that wants to join and does not read of duties.
func (m *Member) withoutDuties(t *table.Table) (id string, ok bool) {
	if len(t.Duties) == 0 && !m.suspended(t) {
		return "", false
	}
	return m.olderJoiner(t, table.DutyFormat)
}

// olderJoiner returns a process that wants to join and does not read a format.
func (m *Member) olderJoiner(t *table.Table, format int) (id string, ok bool) {
	if !m.watch.all || !m.watch.complete {
		return "", false
	}
	for other, o := range m.watch.others {
		_, member := t.Member(other)
		late := o.missing || m.silence(other) >= m.cfg.LeaseDuration
		if o.older && o.lease.Format < format && !member && !late && (id == "" || other < id) {
			id = other
		}
	}
	return id, id != ""
}

// unownedDuty says whether the table has a duty that nobody owns.
func unownedDuty(t *table.Table) bool {
	return slices.ContainsFunc(t.Runs, func(r table.Run) bool { return r.Owner == "" && t.Duty(r.Slots.First) != "" })
}

// assign returns the next owners of all slots: hash slots by assignSlots, duties by plan.AssignDuties. in describes
// both. hold says that slots of live members stay where they are.
func (m *Member) assign(t *table.Table, in plan.Input, hold bool) []string {
	owners := in.Owners
	in.Owners = owners[:t.Slots]
	target := m.assignSlots(t, in, hold)
	if len(t.Duties) == 0 {
		return target
	}
	if m.suspended(t) {
		return append(target, make([]string, len(t.Duties))...)
	}
	takers, can := m.takers(t, in.Members, hold)
	owners, in.Moving = m.dutiesToYield(t, in, owners, takers, can, hold)
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

// dutyKinds returns the duties, by index, in two parts: those that users declared and the rota's own. Each part is
// spread evenly by itself: of two users' duties each of two members has one, whatever it has of the rota's own.
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

// takers returns who may get which duties: those of the members that receive slots, and where none of these can do a
// duty, all that renew on time. So a duty does not wait for its only member's JoinDelay or probation (rule R9). A
// leaver asks for neither.
func (m *Member) takers(
	t *table.Table, given []plan.Member, hold bool,
) (takers []plan.Member, can func(member, duty int) bool) {
	yields := func(p plan.Member) bool { return m.yields(t, p, hold) }
	able := make([]slot.Set, len(given)) // what each member can do
	of := t.DutiesOf()
	takers = slices.Clone(given)
	var served, done slot.Set // done: by a member that does not yield them
	for i, p := range given {
		entry, _ := t.Member(p.ID)
		able[i] = of(entry)
		if p.Receives {
			served = served.Union(able[i])
		}
		takers[i].Receives = p.Receives || m.takesDuties(entry)
		if takers[i].Receives && !yields(p) {
			done = done.Union(able[i])
		}
		takers[i].Leaves = p.Leaves && !yields(p)
	}
	return takers, func(member, duty int) bool {
		s := slot.Slot(int(t.Slots) + duty)
		if yields(given[member]) && done.Has(s) {
			return false
		}
		return able[member].Has(s) && (given[member].Receives || !served.Has(s))
	}
}

// takesDuties says that a member may get a duty that nobody else can do.
func (m *Member) takesDuties(other table.Member) bool {
	onTime := other.ID == m.cfg.Self.ID || m.renewsOnTime(other.ID)
	return m.phase == joined && onTime && !other.Leaving && !m.dead(other.ID)
}
