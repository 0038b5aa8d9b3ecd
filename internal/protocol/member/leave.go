package member

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/slot"
)

// leave starts to leave (rule R9).
func (m *Member) leave() {
	switch m.phase {
	case starting:
		m.refused = nil // it was asked to end
		if m.lease.underWay {
			m.phase = parting // the Lease may exist by now
			m.part()
			return
		}
		m.stop(nil, false)
	case joining:
		m.phase = leaving // followTable goes on, once the swap under way has an answer
	case joined:
		m.phase = leaving
		m.note("Leaving", false, "handing over what this member owns")
	case leaving, parting, ended:
	}
}

// part deletes the member's own Lease, the last thing it does.
func (m *Member) part() {
	m.phase = parting
	m.shutAll()
	if m.lease.underWay {
		return // its answer has the version to delete; see keepParting
	}
	m.keepParting()
}

// keepParting deletes the Lease once no renewal is under way.
func (m *Member) keepParting() {
	id := m.cfg.Self.ID
	switch {
	case m.lease.underWay || m.deleting[id]:
	case m.lease.mine.UID == "":
		m.stop(nil, false)
	default:
		m.deleting[id] = true
		m.do(DeleteLease{ID: id, UID: m.lease.mine.UID, Version: m.lease.mine.Version, Timeout: m.cfg.WriteTimeout})
	}
}

func (m *Member) parted(o Outcome) {
	if o == OutcomeUnknown || o == OutcomeFailed {
		// The planners will delete the Lease. The table does not name this member any more, so nothing waits for that.
		err := fmt.Errorf("lease of member %s could not be deleted; it will be removed when it has expired", m.cfg.Self.ID)
		m.stop(errors.Join(m.refused, err), false)
		return
	}
	m.stop(m.refused, false)
}

// draftLeave plans a leaver's moves, and removes the leaver once it owns nothing. It says whether the draft is
// complete.
func (m *Member) draftLeave(t *table.Table, d *draft) bool {
	id := m.cfg.Self.ID
	self, named := t.Member(id)
	if !named {
		d.supersede()
		return true
	}
	if self.Leaving && ownsNothing(t, id) && !m.transferUnknown() {
		d.edit().Remove(id)
		d.due = true
		return true
	}
	if !self.Leaving {
		self.Leaving = true
		d.edit().Put(self)
		d.due = true
	}
	// If nobody can take the slots, they are drained and left without owner.
	in := m.planInput(t, m.takesOver(t))
	in.Only = id
	in.Tolerant = m.rollout(t)
	if m.draftMoves(t, d, m.assign(t, in, false)) {
		d.due = true
	}
	return false
}

// takesOver returns a function that says whether a leaver's slots may go to a member: not to a drained one, unless
// there are no others (rule R19).
func (m *Member) takesOver(t *table.Table) func(table.Member) bool {
	there := func(other table.Member) bool {
		return m.watch.others[other.ID] == nil || m.renewsOnTime(other.ID)
	}
	better := func(other table.Member) bool { return !t.Drained(other.ID) && there(other) }
	if slices.ContainsFunc(t.Members, func(other table.Member) bool {
		return !other.Leaving && other.ID != m.cfg.Self.ID && !m.dead(other.ID) && better(other)
	}) {
		return better
	}
	return there
}

// inDoubt says that a swap of unknown outcome may still happen: no later version of the table was seen.
func (m *Member) inDoubt() bool {
	return m.swap.unknown != "" && resourceversion.Compare(m.snap.Version, m.swap.unknown) <= 0
}

// transferUnknown says that a transfer was sent and its outcome is not known yet.
func (m *Member) transferUnknown() bool {
	for i := range m.slots {
		if m.slots[i].state == sent {
			return true
		}
	}
	return false
}

func ownsNothing(t *table.Table, id string) bool {
	owned := t.Owned(id)
	return owned.Empty()
}

// draftMoves sets the next owners of this member's slots to target. It says whether any changed.
func (m *Member) draftMoves(t *table.Table, d *draft, target []string) bool {
	self := m.cfg.Self.ID
	changes := map[string]*slot.Set{}
	eachSlot(t, func(r table.Run) bool { return r.Owner == self }, func(s slot.Slot, r table.Run) {
		to := target[s]
		if to == r.Next || to == self || m.slots[s].state == sent || to != "" && !d.mayMove() {
			return
		}
		if changes[to] == nil {
			changes[to] = &slot.Set{}
		}
		changes[to].Add(s)
	})
	for _, to := range sortedKeys(changes) {
		set := changes[to]
		d.update(*set, func(r *table.Run) { r.Next, r.Ready = to, false })
	}
	return len(changes) > 0
}
