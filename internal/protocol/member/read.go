package member

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// keepReading sends the consistent read of the table that was requested.
func (m *Member) keepReading() {
	if !m.read.wanted || m.read.underWay || !m.due(m.read.retryAt) {
		return
	}
	m.read.wanted, m.read.underWay = false, true
	m.do(ReadTable{})
}

// readSoon requests a consistent read, with jitter since other members may do the same.
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
		m.read.wanted = true // a newer version may have been seen meanwhile
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
	if m.unfit.err != nil {
		return // validAgain reports when work goes on
	}
	m.note("Resumed", false, "the Lease is renewed and the table read again, at epoch %d", m.top)
}

// believe accepts a version as the current one if it is newer (rules R4, R5, R16).
func (m *Member) believe(s Snapshot, consistent bool) {
	if s.Missing() {
		m.believeMissing(s, consistent)
		return
	}
	if m.gone[s.UID] || resourceversion.Compare(s.Version, m.floor) <= 0 {
		// The watch lags, or the answer was overtaken. Its epoch still counts.
		if s.precedes(m.snap) && s.Table.Epoch > m.snap.Table.Epoch {
			m.believeCopy(m.snap, s.Table.Epoch)
		}
		return
	}
	m.floor, m.seenAt = s.Version, m.now.Mono
	m.reconsider()
	if err := m.cfg.refuse(s); err != nil {
		m.believeUnfit(s, err)
		return
	}
	if s.adopted() && s.Table.Epoch < m.top {
		if s.UID != m.tableUID { // its maker did not know the former one
			m.stop(stale(s, m.top), false)
			return
		}
		m.believeCopy(s, m.top)
		return
	}
	if m.tableUID != "" && m.tableUID != s.UID {
		m.gone[m.tableUID] = true
	}
	m.validAgain(s)
	if !s.adopted() {
		m.found(s) // created, or restored
		return
	}
	if m.tableUID != s.UID {
		if m.tableUID != "" {
			m.shutAll() // another object has replaced the table (rule R5)
			m.slots.shut()
		}
		m.tableUID = s.UID
		if _, member := s.Table.Member(m.cfg.Self.ID); !member && m.phase == joined {
			m.phase = joining
		}
	}
	m.snap, m.top, m.recovery = s, s.Table.Epoch, recovery{}
	m.slots = append(m.slots, make([]slotState, max(0, s.Table.Total()-len(m.slots)))...)
	m.apply(planner.Observe(m.view()))
}

// unfit is a version of the table that the member cannot use. uid is empty if there is none.
type unfit struct {
	uid string
	err error
}

// believeUnfit stops all work because no member can use this version. No member overwrites it, and no swap on an
// earlier version can succeed, so the owners stay as they were. The member waits for a valid version, or for the table
// to be deleted (rule R4). If the version is valid for members with other options or a newer release, it may be their
// table. So a member that the table did not name before ends (rules R4, R18). If the release is newer, the member
// creates its Lease first, which shows planners what it reads (rule R18). A member that has left ignores the version.
func (m *Member) believeUnfit(s Snapshot, err error) {
	err = fmt.Errorf("table at resourceVersion %s: %w; nothing was overwritten", s.Version, err)
	newer := errors.Is(s.Err, table.ErrFormat)
	switch {
	case m.phase == parting:
		return
	case m.namedIn(s.UID) || s.Err != nil && !newer:
	case newer && m.phase == starting:
		m.refused = err // renewed stops it
		return
	default:
		m.stop(err, false)
		return
	}
	m.suspend(unfit{s.UID, fmt.Errorf("%w; all work stops until it is valid again, or deleted", err)})
}

// reconsider clears a refusal, since another version has come.
func (m *Member) reconsider() {
	if m.phase == starting {
		m.refused = nil
	}
}

// namedIn reports whether this object is the table that names this member.
func (m *Member) namedIn(uid string) bool {
	return (m.phase == joined || m.phase == leaving) && !m.recovery.on && m.snap.UID == uid
}

// believeCopy stops all work because the version is older than one seen before: an old copy was put over the table. The
// decisions of the epochs in between are lost, so this object is never used again, whatever its next versions are. The
// member keeps reporting the highest epoch in its Lease, and waits until the table is deleted (rule R16).
func (m *Member) believeCopy(s Snapshot, epoch uint64) {
	m.gone[s.UID] = true
	m.top = max(m.top, epoch)
	m.suspend(unfit{s.UID, fmt.Errorf("%w; all work stops until it is deleted", stale(s, epoch))})
}

// stale returns the error for a table that is older than one seen before.
func stale(s Snapshot, epoch uint64) error {
	return fmt.Errorf("table at resourceVersion %s has epoch %d, but epoch %d was seen before: "+
		"an old copy was put over it; delete the ConfigMap, and the members will make a new table",
		s.Version, s.Table.Epoch, epoch)
}

// suspend shuts everything until a usable version comes.
func (m *Member) suspend(u unfit) {
	was := m.unfit.err
	m.unfit = u
	if was == nil {
		m.shutAll()
		m.slots.shut()
		if m.cfg.Outlives {
			m.outlives = m.now.Mono + m.cfg.RenewDeadline
		}
	}
	if was == nil || was.Error() != u.err.Error() { // an old copy over an invalid table has another remedy
		m.note("TableInvalid", true, "%v", u.err)
	}
}

// validAgain ends the wait for a valid version: s is valid, or the table is missing.
func (m *Member) validAgain(s Snapshot) {
	if m.unfit.err == nil {
		return
	}
	m.unfit = unfit{}
	if s.Missing() {
		m.note("TableValid", false, "the invalid table was deleted")
		return
	}
	m.note("TableValid", false, "the table is valid again, at epoch %d", s.Table.Epoch)
}

func (m *Member) believeMissing(s Snapshot, consistent bool) {
	if s.Version != "" && resourceversion.Compare(s.Version, m.floor) <= 0 {
		return
	}
	if !consistent {
		// Only a watch reported it. Shut first (rule R5), then read.
		m.read.wanted, m.read.retryAt = true, 0
	}
	for _, uid := range []string{m.snap.UID, m.tableUID, m.unfit.uid} {
		if uid != "" {
			m.gone[uid] = true
		}
	}
	if s.Version != "" {
		m.floor = s.Version
	}
	m.snap = Snapshot{}
	m.reconsider()
	m.validAgain(s)
	m.beginRecovery()
	m.recovery.confirmed = m.recovery.confirmed || consistent
}

// confirm handles a consistent read. If Leases report a later epoch than the table's, no member may use the table (rule
// R16). If the Lease has reported "open" since before the read, the gate may open (rule R5).
func (m *Member) confirm(e TableSeen) {
	s := e.Snapshot
	if m.phase == ended || s.Table == nil || s.UID != m.snap.UID {
		return
	}
	if highest := m.epochs[s.UID]; s.Table.Epoch < highest && e.Begun >= m.epochsAt {
		if e.Begun == m.epochsAt {
			m.read.wanted = true // the answer may be older than the Lease
			return
		}
		m.believeCopy(s, highest)
		return
	}
	if m.lease.reported && e.Begun >= m.lease.reportedAt && m.usable() {
		m.lease.open = true
	}
}

// precedes reports whether s is an earlier version of the same table.
func (s Snapshot) precedes(later Snapshot) bool {
	return s.adopted() && later.adopted() && s.UID == later.UID && resourceversion.Compare(s.Version, later.Version) < 0
}

// behindLeases reports whether Leases show a later epoch than the table's: either a watch lags, or an old copy was put
// over the table. Until that is clear, all Leases must stay, even dead members', since they may be the only record of
// that epoch (rule R16).
func (m *Member) behindLeases(t *table.Table) bool {
	return t.Epoch < m.epochs[m.snap.UID]
}

// refuse returns why a member cannot use a version: it is invalid, or is for members with other options.
func (c *Config) refuse(s Snapshot) error {
	t := s.Table
	if s.Err != nil || t.Slots == c.Slots && t.Key == c.Key {
		return s.Err
	}
	cure := "it has no members: delete the ConfigMap if this member's options are right"
	if len(t.Members) > 0 {
		cure = fmt.Sprintf("its members are %s: set this one's Options.Slots and Options.Key to theirs, "+
			"and leave the ConfigMap as it is", membersText(t))
	}
	return fmt.Errorf("it has %d slots by key %s, but this member was started with %d slots by key %s; %s",
		t.Slots, t.Key, c.Slots, c.Key, cure)
}

// membersText lists the first members of a table.
func membersText(t *table.Table) string {
	const most = 3
	var ids []string
	for _, other := range t.Members[:min(most, len(t.Members))] {
		ids = append(ids, other.ID)
	}
	if more := len(t.Members) - most; more > 0 {
		ids = append(ids, fmt.Sprintf("%d more", more))
	}
	return strings.Join(ids, ", ")
}
