package member

import (
	"slices"

	"github.com/rota-dev/rota/internal/protocol/table"
)

// deleteDeadLeases deletes the Leases of members held dead. Only then are they removed from the table (rule R7).
func (m *Member) deleteDeadLeases() {
	if m.phase == parting {
		m.keepParting()
		return
	}
	t := m.table()
	if t == nil || m.lapsed || !m.watch.complete || !m.follows() || m.hides(t) {
		return
	}
	if p, ok := m.predecessor(t); ok {
		if m.watch.others[p.ID] != nil {
			m.deleteDeadLease(p.ID)
		}
	}
	if m.phase != joined || !m.isPlanner() || !m.watch.all {
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
	if m.deleting[id] || m.toExpel[id] || !m.due(m.plan.deleteAt) {
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
		m.parted(e.Outcome)
		return
	}
	switch e.Outcome {
	case OutcomeDone, OutcomeMissing:
		m.toExpel[e.ID] = true
	case OutcomeConflict:
		// It is alive: it renewed since it was last seen. Its wait starts again.
		if o := m.watch.others[e.ID]; o != nil {
			o.pending, o.seen = true, m.now.Mono
		}
	case OutcomeUnknown, OutcomeFailed:
		m.plan.deleteAt = m.now.Mono + m.cfg.RetryPeriod/4
	}
}

// maxExpels is how many expels the table remembers.
const maxExpels = 64

// draftExpels removes members from the table, which remembers it (rule R9).
func (m *Member) draftExpels(t *table.Table, d *draft, dead []string) {
	d.edit()
	d.next.Expels = slices.DeleteFunc(d.next.Expels, func(e table.Expel) bool {
		return m.clockDistance(e.At) >= int64(crashMemory.Seconds())
	})
	for _, id := range dead {
		expelled, _ := t.Member(id)
		d.next.Lose(id, max(m.now.Wall, 1))
		d.next.Remove(id)
		if expelled.Pod != "" {
			d.next.Expels = append(d.next.Expels, table.Expel{Pod: expelled.Pod, At: m.now.Wall})
		}
	}
	if n := len(d.next.Expels) - maxExpels; n > 0 {
		d.next.Expels = d.next.Expels[n:]
	}
}
