package member

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/table"
)

// keepReading sends the consistent read of the table that was asked for.
func (m *Member) keepReading() {
	if !m.read.wanted || m.read.underWay || !m.due(m.read.retryAt) {
		return
	}
	m.read.wanted, m.read.underWay = false, true
	m.do(ReadTable{})
}

// readSoon asks for a consistent read, with jitter in case others read at the same moment.
func (m *Member) readSoon() {
	if !m.read.wanted {
		m.read.wanted, m.read.retryAt = true, m.now.Mono+m.jitter(m.cfg.Coalesce/2)
	}
}

func (m *Member) tableSeen(e TableSeen) {
	if e.Consistent {
		m.read.underWay = false
	}
	if e.Consistent && e.Snapshot.Missing() && m.snap.UID != "" && e.Begun <= m.seenAt {
		m.read.wanted = true // the version seen meanwhile may be newer
		return
	}
	m.believe(e.Snapshot, e.Consistent)
	if e.Consistent {
		m.confirm(e)
	} else {
		m.trail.shown(e)
	}
	if m.phase == ended || !e.Consistent || !m.lapsed || m.readAfter == 0 {
		return
	}
	if e.Begun < m.readAfter {
		m.read.wanted = true
		return
	}
	m.lapsed, m.readAfter = false, 0
	m.do(Deadline{At: m.deadline()})
	m.note("Resumed", false, "the Lease is renewed and the table read again, at epoch %d", m.top)
}

// believe makes a version the one that the member goes by, if it is newer (rules R4, R5, R16).
func (m *Member) believe(s Snapshot, consistent bool) {
	if s.Missing() {
		m.believeMissing(s, consistent)
		return
	}
	if m.gone[s.UID] || resourceversion.Compare(s.Version, m.floor) <= 0 {
		// The watch lags, or the answer was overtaken. The version still tells of an epoch that there was.
		if m.precedes(s) && s.Table.Epoch > m.snap.Table.Epoch {
			m.stop(m.stale(m.snap, s.Table.Epoch), false)
		}
		return
	}
	if s.Err == nil {
		s.Err = m.refuse(s.Table)
	}
	if s.Err != nil {
		m.stop(fmt.Errorf("table at resourceVersion %s: %w; "+
			"nothing was overwritten: repair the ConfigMap, or delete it to start again", s.Version, s.Err), false)
		return
	}
	if s.adopted() && s.Table.Epoch < m.top {
		m.stop(m.stale(s, m.top), false)
		return
	}
	if m.known != "" && m.known != s.UID {
		m.gone[m.known] = true
	}
	m.floor, m.seenAt = s.Version, m.now.Mono
	if !s.adopted() {
		m.found(s) // created, or restored
		return
	}
	if m.known != s.UID {
		if m.known != "" {
			m.shutAll() // another object has replaced the table (rule R5)
			m.shutSlots()
		}
		m.known = s.UID
		if _, member := s.Table.Member(m.cfg.Self.ID); !member && m.phase == joined {
			m.phase = joining
		}
	}
	m.snap, m.top, m.recovery = s, s.Table.Epoch, recovery{}
	m.slots = append(m.slots, make([]slotState, max(0, s.Table.Total()-len(m.slots)))...)
	seen := make(map[string]time.Duration, len(s.Table.Members))
	for _, other := range s.Table.Members {
		first, known := m.plan.seen[other.ID]
		if !known {
			first = m.now.Mono
			if len(m.plan.seen) > 0 {
				m.checkClock(other)
			}
		}
		seen[other.ID] = first
	}
	m.plan.seen = seen
}

func (m *Member) believeMissing(s Snapshot, consistent bool) {
	if s.Version != "" && resourceversion.Compare(s.Version, m.floor) <= 0 {
		return
	}
	if !consistent {
		// Only a watch says so. Shut first (rule R5), then read.
		m.read.wanted, m.read.retryAt = true, 0
	}
	for _, uid := range []string{m.snap.UID, m.known} {
		if uid != "" {
			m.gone[uid] = true
		}
	}
	if s.Version != "" {
		m.floor = s.Version
	}
	m.snap = Snapshot{}
	m.beginRecovery()
	m.recovery.confirmed = m.recovery.confirmed || consistent
}

// confirm draws conclusions from a consistent read. If the table is older than what Leases tell of it, nobody must go
// by it (rule R16). If the Lease has said "open" since before the read, the gate may open (rule R5).
func (m *Member) confirm(e TableSeen) {
	s := e.Snapshot
	if m.phase == ended || s.Table == nil || s.UID != m.snap.UID {
		return
	}
	if told := m.epochs[s.UID]; s.Table.Epoch < told && e.Begun >= m.toldAt {
		m.stop(m.stale(s, told), false)
		return
	}
	if m.lease.said && e.Begun >= m.lease.saidAt && m.usable() {
		m.lease.open = true
	}
}

// precedes says that a version is an earlier version of the table that this member goes by.
func (m *Member) precedes(s Snapshot) bool {
	return s.adopted() && m.snap.adopted() && s.UID == m.snap.UID &&
		resourceversion.Compare(s.Version, m.snap.Version) < 0
}

// hides says that Leases tell of a later epoch than the table's: a watch lags, or an old copy was put over the table.
// Until it is known which, all Leases must stay, even those of the dead: only they may tell of that epoch (rule R16).
func (m *Member) hides(t *table.Table) bool {
	return t.Epoch < m.epochs[m.snap.UID]
}

// stale is the error for a table that is older than one that was seen before.
func (m *Member) stale(s Snapshot, epoch uint64) error {
	return fmt.Errorf("table at resourceVersion %s has epoch %d, but epoch %d was seen before: "+
		"an old copy was put over it; delete the ConfigMap, and the members will make a new table",
		s.Version, s.Table.Epoch, epoch)
}

// refuse says why this member must not work with a table that is valid in itself.
func (m *Member) refuse(t *table.Table) error {
	if t.Slots != m.cfg.Slots || t.Key != m.cfg.Key {
		return fmt.Errorf("it has %d slots by key %s, but this member was started with %d slots by key %s: "+
			"give all members the same options", t.Slots, t.Key, m.cfg.Slots, m.cfg.Key)
	}
	return nil
}
