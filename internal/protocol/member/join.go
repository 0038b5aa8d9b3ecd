package member

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// draftJoin adds this member to the table. It removes the previous process of its container (rule R9).
func (m *Member) draftJoin(t *table.Table, d *draft) {
	if !m.watch.all || !m.watch.complete {
		return
	}
	if other, ok := m.namesake(t); ok {
		m.meet(other, d)
		return
	}
	if p, ok := m.predecessor(t); ok && !m.toExpel[p.ID] {
		return // deleteDeadLeases deletes its Lease first
	} else if ok {
		m.draftExpels(t, d, []string{p.ID})
	}
	self := m.cfg.Self
	self.Joined, self.Leaving = m.now.Wall, false
	self.Duties, self.Labels = m.announced(t, d.leftOut), m.labels(t)
	d.edit().Put(self)
	d.next.Inherit(self, m.cfg.Former)
	d.due = true
	if p, ok := m.predecessor(t); ok {
		epoch := d.noteExpel(t.Epoch, m.expelWait(t, []string{p.ID}))
		d.update(able(d.next, self, t.Owned(p.ID)), func(r *table.Run) {
			*r = table.Run{Slots: r.Slots, Owner: self.ID, Epoch: epoch, Unsettled: true}
		})
	}
}

// predecessor is the member that ran in this container before it was restarted. If the replica was expelled lately
// there is none: it may be crashing in a loop, and the planners expel it in time. Where work outlives processes there
// is none either: the planners expel it once its work has ended.
func (m *Member) predecessor(t *table.Table) (table.Member, bool) {
	if m.cfg.Outlives || m.cfg.Self.PodUID == "" || m.phase != joining || m.expels(t, m.cfg.Self.Pod) > 0 {
		return table.Member{}, false
	}
	for _, p := range t.Members {
		if p.ID != m.cfg.Self.ID && p.PodUID == m.cfg.Self.PodUID && p.Container == m.cfg.Self.Container {
			return p, true
		}
	}
	return table.Member{}, false
}

// ErrIdentity is wrapped by the error of a Stop because another process has this one's identity.
var ErrIdentity = errors.New("the identity is in use")

// aliveAfter is how many renewals of a namesake must be seen. The first one may be older than the list.
const aliveAfter = 2

// namesake is a member that has this member's identity and may still work. Processes of this very container do not
// count, since it runs one at a time, nor do members that leave.
func (m *Member) namesake(t *table.Table) (table.Member, bool) {
	self := m.cfg.Self
	for _, other := range t.Members {
		same := self.Pod != "" && other.Pod == self.Pod && other.Container == self.Container &&
			(other.PodUID == "" || other.PodUID != self.PodUID)
		if same && !other.Leaving && !m.dead(other.ID) && !slices.Contains(m.cfg.Former, other.ID) {
			return other, true
		}
	}
	return table.Member{}, false
}

// meet ends this member if its namesake is alive. Until that is known it waits.
func (m *Member) meet(other table.Member, d *draft) {
	pod := m.cfg.Self.Pod
	if o := m.watch.others[other.ID]; o == nil || o.missing || o.renewals < aliveAfter {
		if !m.met {
			m.met = true
			m.note("IdentityInUse", false, "member %s has this replica's pod name, %s; "+
				"waiting until its Lease shows whether it is alive", other.ID, pod)
		}
		return
	}
	if m.inDoubt() {
		d.supersede()
		return
	}
	m.refused = fmt.Errorf("%w: member %s, which renews its Lease, has the same pod name, %s: "+
		"give every replica a pod name of its own", ErrIdentity, other.ID, pod)
	m.note("IdentityInUse", true, "member %s ends: %v", m.cfg.Self.ID, m.refused)
	m.part()
}
