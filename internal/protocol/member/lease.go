package member

import (
	"errors"
	"fmt"
	"time"
)

// lease is the state of the member's own Lease (rules R1, R2, R5).
type lease struct {
	// mine is the Lease as of its last successful renewal; an empty UID: not created yet.
	mine Lease
	// start is when the last successful renewal was sent, as Time.Late.
	start    time.Duration
	underWay bool
	next     time.Duration
	// failed: the last renewal was not answered by a success. slow: it was not, or half of WriteTimeout was over by then.
	failed, slow bool
	// said is what the last successful renewal said of the gate, and saidAt when it first said "open". open: the table was
	// read consistently since. So nobody made another table after seeing this gate shut (rules R5, R16).
	said, open bool
	saidAt     time.Duration
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

// checkDeadline shuts the gate if the deadline has passed. Step calls it before it looks at the event (rules R2, R13).
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
	m.shutSlots()
	m.note("Lapsed", true, "no renewal of the Lease succeeded within %v; working on nothing until one does",
		m.cfg.RenewDeadline)
}

// crowd is how many members renew in a RetryPeriod at most, unless that is too seldom.
const crowd = 500

// period is the time between renewals of this member, and of the others. It is RetryPeriod but where there are more
// than crowd members: there it grows with their number, so that the load on the API server does not. It stays so far
// below a quarter of a lease that time is heard as it passes (rule R1), and leaves half the deadline for another try.
func (m *Member) period() time.Duration {
	longer := m.cfg.RetryPeriod * time.Duration(m.members()) / crowd
	return max(m.cfg.RetryPeriod, min(longer, m.cfg.LeaseDuration/4-m.cfg.RetryPeriod/8, m.cfg.RenewDeadline/2))
}

// keepLease creates the Lease. It renews it when a renewal is due, and when the Lease has to say something new.
func (m *Member) keepLease() {
	if m.lease.underWay || m.phase == parting {
		return
	}
	open := m.usable()
	news := open != m.lease.said || m.wantsLong() && !m.long.announced && !m.long.asked
	urgent := m.lease.mine.UID != "" && news && !m.lease.failed
	next := m.lease.next
	if m.watch.suspects && m.watch.all && !m.lease.failed {
		// Heard time advances only with renewals of its own. An expel that is near would wait for the next one.
		next -= m.period() - max(m.cfg.RetryPeriod/4, 1) // never at once again, also where RetryPeriod is the unit of time
	}
	if !urgent && !m.due(next) {
		return
	}
	m.lease.underWay = true
	m.lease.next = m.now.Mono + m.period()
	l := Lease{
		ID: m.cfg.Self.ID, UID: m.lease.mine.UID, Version: m.lease.mine.Version,
		Epoch: m.top, Open: open, Format: m.cfg.Self.MaxFormat,
		LongestWrite: m.longestWrite(),
	}
	m.long.asked = l.LongestWrite > 0
	m.long.announced = m.long.announced && m.long.asked
	if !m.recovery.on && m.snap.Table != nil {
		l.TableUID = m.snap.UID
	}
	if m.refused != nil {
		l.Epoch, l.TableUID = 0, "" // it can go by no table: planners look for such Leases (rule R18)
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
		// An answer to an earlier renewal must not take back that the gate is shut.
		m.lease.said, m.lease.open = false, false
	}
	m.do(RenewLease{Lease: l, Timeout: timeout})
}

func (m *Member) renewed(e Renewed) {
	m.lease.underWay = false
	m.lease.failed = e.Outcome != OutcomeDone
	m.lease.slow = m.lease.failed || m.now.Late()-e.Start > m.cfg.WriteTimeout/2
	first := m.lease.mine.UID == ""
	defer func() { m.recovery.early = false }()
	switch e.Outcome {
	case OutcomeDone:
		m.lease.mine = e.Lease
		m.long.announced = e.Lease.LongestWrite > 0
		m.lease.start = e.Start
		m.renewalSucceeded(e.Lease.Version)
		m.say(e.Lease.Open)
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
			// Another process has a Lease of this name, or an earlier create of this one was carried out late.
			m.stop(fmt.Errorf("lease of member %s exists already: member IDs must be unique per process start",
				m.cfg.Self.ID), true)
			return
		}
		m.stop(fmt.Errorf("lease of member %s is gone or was taken over: %w", m.cfg.Self.ID, ErrExpelled), true)
	case OutcomeUnknown, OutcomeFailed:
		m.lease.next = min(m.lease.next, m.now.Mono+m.cfg.RetryPeriod/2+m.jitter(m.cfg.RetryPeriod/4))
	}
}

// say records what a renewal said of the gate.
func (m *Member) say(open bool) {
	switch {
	case !open:
		m.lease.said, m.lease.open = false, false
	case !m.lease.said:
		m.lease.said, m.lease.saidAt = true, m.now.Mono
	}
	if m.lease.said && !m.lease.open {
		m.read.wanted, m.read.retryAt = true, 0
	}
}

// note writes a line for the log, and an event.
func (m *Member) note(reason string, warning bool, format string, args ...any) {
	m.do(Notify{Reason: reason, Warning: warning, Message: fmt.Sprintf(format, args...)})
}
