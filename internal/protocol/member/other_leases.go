package member

import (
	"slices"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// This file chooses the other members' Leases to watch, follows the watch, and deletes dead members' Leases.

// chooseWatch selects the Leases to watch. Planners, newcomers and members in recovery watch all of them. Others watch
// the planners and the members that they hand slots to, which keeps the load on the API server at O(members).
func (m *Member) chooseWatch() {
	if m.lease.mine.UID == "" || m.snap.Table == nil && !m.recovery.on {
		return
	}
	if m.unfit.err != nil && !m.recovery.on {
		return // the planners are unknown, so keep the watch
	}
	// A newcomer reads all Leases once, for their epochs (rule R16).
	asks := m.needsLeases()
	all := m.recovery.on || m.phase == joining || m.rank() >= 0 || asks
	var ids []string
	if !all {
		ids = m.watchedIDs()
	}
	anew := m.watch.serial == 0 ||
		asks && m.watch.complete && resourceversion.Compare(m.watch.since, m.snap.Version) < 0
	if !anew && all == m.watch.all && slices.Equal(ids, m.watch.ids) {
		return
	}
	m.watch.serial = m.nextSerial()
	m.watch.all, m.watch.ids, m.watch.complete, m.watch.since = all, ids, false, m.snap.Version
	m.watch.echo = 0
	m.do(WatchLeases{Serial: m.watch.serial, All: all, IDs: ids})
}

func (m *Member) watchedIDs() []string {
	t := m.table()
	if t == nil {
		return nil
	}
	ids := []string{m.cfg.Self.ID}
	ids = append(ids, m.candidates.Shortlist(m.snap.Version, t, m.dead)...) // including the dead, which may come back
	for _, r := range t.Runs {
		if r.Owner == m.cfg.Self.ID && r.Next != "" {
			ids = append(ids, r.Next)
		}
	}
	if id := m.predecessor(); id != "" {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// needsLeases reports whether this member must read all Leases to prove the table. Usually the watch of the table
// proves it in a moment. It does not for a newcomer, after the watch restarted, or while the watch is silent.
func (m *Member) needsLeases() bool {
	unproven := m.table() != nil && !m.trail.follows(m.snap.Version)
	silent := m.waited(&m.trail.unproven, unproven, m.cfg.RetryPeriod)
	return unproven && (m.trail.proven == "" || m.trail.begun != "" || silent)
}

func (m *Member) leasesSeen(e LeasesSeen) {
	w, self := &m.watch, m.cfg.Self.ID
	if e.Watch != w.serial {
		return
	}
	ids := map[string]bool{}
	echoed := false
	for _, l := range e.Leases {
		ids[l.ID] = true
		if l.TableUID != "" && l.Epoch > m.epochs[l.TableUID] {
			m.epochs[l.TableUID], m.epochsAt = l.Epoch, m.now.Mono
		}
		switch {
		case l.ID != self:
			w.seen(l, m.now.Mono, w.complete && !e.Complete)
		case l.UID != m.lease.mine.UID:
			m.lease.next = m.now.Mono // it was replaced: renew to find out
		default:
			echoed = w.echoed(l.Version, m.now.Mono, m.cfg.LeaseDuration/4) || echoed
		}
	}
	for _, id := range e.Gone {
		if id == self {
			m.lease.next = m.now.Mono
			continue
		}
		w.missing(id, w.all && w.complete && m.dead(id)) // a complete watch of all Leases misses no renewal
	}
	if e.Complete {
		w.listed(ids)
		if w.all {
			m.trail.prove(w.since)
		}
		if !ids[self] {
			m.lease.next = m.now.Mono // renew to find out whether the Lease is gone
		}
	}
	if t := m.table(); t != nil && w.complete {
		w.expect(t.Members, self)
	}
	if echoed {
		w.settle(m.now.Mono, m.cfg.LeaseDuration, m.period())
		m.recovery.settle(w.heard)
	}
}

// dead reports whether this member holds another one dead (rule R1).
func (m *Member) dead(id string) bool {
	return id != m.cfg.Self.ID && (m.toExpel[id] || m.watch.expired(id, m.cfg.LeaseDuration))
}

// deleteDeadLeases deletes the Leases of members held dead. Only then are the members removed from the table (rule R7).
func (m *Member) deleteDeadLeases() {
	if m.phase == parting {
		m.keepParting()
		return
	}
	t := m.table()
	if t == nil || m.lapsed || !m.watch.complete || !m.trail.follows(m.snap.Version) || m.behindLeases(t) {
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
		if m.dead(id) && (member || m.watch.silence(id) >= 2*m.cfg.LeaseDuration && !m.watch.others[id].missing) {
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
