package member

import (
	"slices"
)

// deleteDeadLeases deletes the Leases of members held dead. Only then are the members removed from the table (rule R7).
func (m *Member) deleteDeadLeases() {
	if m.phase == parting {
		m.keepParting()
		return
	}
	t := m.table()
	if t == nil || m.lapsed || !m.watch.complete || !m.follows() || m.behindLeases(t) {
		return
	}
	if id := m.predecessor(); id != "" && m.watch.others[id] != nil {
		m.deleteDeadLease(id)
	}
	if m.phase != joined || m.rank() < 0 || !m.watch.all {
		return
	}
	var silent []string
	for id, o := range m.watch.others {
		if o.missing || m.dead(id) {
			silent = append(silent, id)
		}
	}
	slices.Sort(silent)
	for _, id := range silent {
		_, member := t.Member(id)
		if m.dead(id) && (member || m.silence(id) >= 2*m.cfg.LeaseDuration && !m.watch.others[id].missing) {
			m.deleteDeadLease(id)
		}
		if !member && m.watch.others[id].missing {
			delete(m.watch.others, id)
		}
	}
	for id := range m.toExpel {
		if _, member := t.Member(id); !member && m.watch.others[id] == nil {
			delete(m.toExpel, id)
		}
	}
}

func (m *Member) deleteDeadLease(id string) {
	if m.deleting[id] || m.toExpel[id] || !m.due(m.deleteAt) {
		return
	}
	m.deleting[id] = true
	o := m.watch.others[id]
	d := DeleteLease{ID: id, Timeout: m.timeout()}
	if !o.missing {
		d.UID, d.Version = o.lease.UID, o.lease.Version
	}
	m.do(d)
}

func (m *Member) leaseDeleted(e LeaseDeleted) {
	delete(m.deleting, e.ID)
	if e.ID == m.cfg.Self.ID {
		// Planners delete the Lease once it has expired. The table no longer names this member, so nothing waits for that.
		m.stop(m.refused, false)
		return
	}
	switch e.Outcome {
	case OutcomeDone, OutcomeMissing:
		m.toExpel[e.ID] = true
	case OutcomeConflict:
		// The member renewed since it was last seen, so it is alive. Its wait starts again.
		if o := m.watch.others[e.ID]; o != nil {
			o.pending, o.seen = true, m.now.Mono
		}
	case OutcomeUnknown, OutcomeFailed:
		m.deleteAt = m.now.Mono + m.cfg.RetryPeriod/4
	}
}
