package member

import (
	"errors"
	"fmt"
	"time"
)

// lease is the state of the member's own Lease (rules R1, R2, R5).
type lease struct {
	// mine is the Lease as of its last successful renewal. Its UID is empty if it was not created yet.
	mine Lease
	// start is when the last successful renewal was sent, as Time.Late.
	start    time.Duration
	underWay bool
	next     time.Duration
	// failed: the last renewal did not succeed. slow: it did not succeed, or took more than half of WriteTimeout.
	failed, slow bool
	// reported is the gate's state in the last successful renewal. reportedAt is when a renewal first reported "open".
	// open is set if the table was read consistently after that. Then no member has made another table because this gate
	// was shut (rules R5, R16).
	reported, open bool
	reportedAt     time.Duration
}

// ErrExpelled is wrapped by the error of a Stop because other members hold this incarnation dead.
var ErrExpelled = errors.New("expelled")

// deadline is when work must stop, as Time.Late (rule R2).
func (m *Member) deadline() time.Duration {
	if m.lease.mine.UID == "" {
		return m.now.Late() + m.cfg.RenewDeadline // there is nothing to protect yet
	}
	return m.lease.start + m.cfg.RenewDeadline
}

// checkDeadline shuts the gate if the deadline has passed. Step calls it before it handles the event (rules R2, R13).
func (m *Member) checkDeadline() {
	if left := m.deadline() - m.now.Late(); m.lease.mine.UID == "" || left > 0 {
		m.at(m.now.Mono + left)
		return
	}
	m.lapse()
}

// lapse starts a lapse, or restarts it: only a renewal that is answered from now on ends it (rule R13).
func (m *Member) lapse() {
	m.readAfter = 0
	if m.lapsed {
		return
	}
	m.lapsed = true
	m.shutAll()
	m.slots.shut()
	m.note("Lapsed", true, "no renewal of the Lease succeeded within %v; all work stops until one does",
		m.cfg.RenewDeadline)
}

// crowd is the largest number of members that renew every RetryPeriod.
const crowd = 500

// period is the time between renewals, for this member and the others. It is RetryPeriod for up to crowd members, and
// then grows with their number to limit the load on the API server. It stays far enough below a quarter of a lease for
// heard time to keep up (rule R1), and leaves half the deadline for another attempt.
func (m *Member) period() time.Duration {
	members := 0
	if t := m.table(); t != nil {
		members = len(t.Members)
	}
	longer := m.cfg.RetryPeriod * time.Duration(members) / crowd
	return max(m.cfg.RetryPeriod, min(longer, m.cfg.LeaseDuration/4-m.cfg.RetryPeriod/8, m.cfg.RenewDeadline/2))
}

// allowLong allows long writes, or withdraws the permission, when that is due.
func (m *Member) allowLong() {
	if a := m.long.allow(!m.due(m.long.until)); a != nil {
		m.do(a)
	}
}

// keepLease creates the Lease. It renews the Lease when a renewal is due and when the Lease's content has to change.
func (m *Member) keepLease() {
	if m.lease.underWay || m.phase == parting {
		return
	}
	open := m.usable()
	news := open != m.lease.reported || m.long.wanted(m.now.Mono) && !m.long.announced && !m.long.asked
	urgent := m.lease.mine.UID != "" && news && !m.lease.failed
	next := m.lease.next
	if m.watch.suspects && m.watch.all && !m.lease.failed {
		// Heard time advances only with this member's renewals. An imminent expel would wait for the next one.
		next -= m.period() - max(m.cfg.RetryPeriod/4, 1) // at least one unit of time later
	}
	if !urgent && !m.due(next) {
		return
	}
	m.lease.underWay = true
	m.lease.next = m.now.Mono + m.period()
	l := Lease{
		ID: m.cfg.Self.ID, UID: m.lease.mine.UID, Version: m.lease.mine.Version,
		Epoch: m.top, Open: open, Format: m.cfg.Self.MaxFormat,
		LongestWrite: m.long.announces(m.now.Mono, &m.cfg),
	}
	m.long.asked = l.LongestWrite > 0
	m.long.announced = m.long.announced && m.long.asked
	if !m.recovery.on && m.snap.Table != nil {
		l.TableUID = m.snap.UID
	}
	if m.refused != nil {
		l.Epoch, l.TableUID = 0, "" // it can use no table: planners look for such Leases (rule R18)
	}
	timeout := m.timeout()
	if m.lapsed {
		timeout = m.longest()
	}
	if l.UID == "" {
		m.do(CreateLease{Lease: l, Timeout: timeout})
		return
	}
	if !open {
		// An answer to an earlier renewal must not overwrite that the gate is shut.
		m.lease.reported, m.lease.open = false, false
	}
	m.do(RenewLease{Lease: l, Timeout: timeout})
}

func (m *Member) renewed(e Renewed) {
	m.lease.underWay = false
	m.lease.failed = e.Outcome != OutcomeDone
	m.lease.slow = m.lease.failed || m.now.Late()-e.Start > m.cfg.WriteTimeout/2
	first := m.lease.mine.UID == ""
	m.recovery.renewed(e, m.snap.Missing())
	switch e.Outcome {
	case OutcomeDone:
		m.lease.mine = e.Lease
		m.long.announced = e.Lease.LongestWrite > 0
		m.lease.start = e.Start
		m.reportGate(e.Lease.Open)
		if m.phase == starting {
			if m.refused != nil {
				m.stop(m.refused, false)
				return
			}
			m.phase = joining
		}
		if first {
			m.read.wanted = true
		}
		left := m.deadline() - m.now.Late()
		if left <= 0 {
			// The answer came after the deadline that it sets.
			m.lease.next = m.now.Mono
			return
		}
		if !m.lapsed {
			m.do(Deadline{At: m.deadline()})
		} else if m.readAfter == 0 {
			m.readAfter = m.now.Mono
			m.read.wanted, m.read.retryAt = true, 0
		}
		m.at(m.now.Mono + left)
	case OutcomeConflict, OutcomeMissing:
		if m.phase == parting {
			m.stop(m.refused, false)
			return
		}
		if first {
			// Another process has a Lease with this name, or an earlier create request took effect late.
			m.stop(fmt.Errorf("lease of member %s exists already: member IDs must be unique per process start",
				m.cfg.Self.ID), true)
			return
		}
		m.stop(fmt.Errorf("lease of member %s is gone or was taken over: %w", m.cfg.Self.ID, ErrExpelled), true)
	case OutcomeUnknown, OutcomeFailed:
		m.lease.next = min(m.lease.next, m.now.Mono+m.cfg.RetryPeriod/2+m.jitter(m.cfg.RetryPeriod/4))
	}
}

// reportGate records the gate's state in a successful renewal.
func (m *Member) reportGate(open bool) {
	switch {
	case !open:
		m.lease.reported, m.lease.open = false, false
	case !m.lease.reported:
		m.lease.reported, m.lease.reportedAt = true, m.now.Mono
	}
	if m.lease.reported && !m.lease.open {
		m.read.wanted, m.read.retryAt = true, 0
	}
}

// note adds a Notify action.
func (m *Member) note(reason string, warning bool, format string, args ...any) {
	m.do(Notify{Reason: reason, Warning: warning, Message: fmt.Sprintf(format, args...)})
}
