package member

import (
	"time"

	"github.com/rota-dev/rota/internal/protocol/planner"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/resourceversion"
)

// swap is the state of changes of the table (rule R3). At most one is in flight. Each is conditional on the last
// version read.
type swap struct {
	underWay bool
	serial   uint64
	// version is the version on which the swap in flight is conditional.
	version string
	// refused is the version on which a swap was conditional that lost to a conflict. A newer one must be read first.
	refused string
	retryAt time.Duration
	// unknown is the version on which the last swap with unknown outcome was conditional. While it is the latest version,
	// the swap may still happen.
	unknown string
	// conflicts counts consecutive conflicts.
	conflicts int
	// sent is when the last swap was sent, as Time.Mono. slow: it was not answered within half of WriteTimeout.
	sent time.Duration
	slow bool
}

// inDoubt reports whether a swap with unknown outcome may still happen, because version is the latest one seen.
func (s *swap) inDoubt(version string) bool {
	return s.unknown != "" && resourceversion.Compare(version, s.unknown) <= 0
}

// work sends the change of the table that is due, if any.
func (m *Member) work() {
	m.deleteDeadLeases()
	if m.phase == leaving && m.unfit.err != nil && m.tableUID != "" {
		m.stop(nil, false) // it cannot hand over, and only its Lease may show the highest epoch
		return
	}
	if m.recovery.on || m.unfit.err != nil {
		if m.phase == leaving {
			m.part() // its gate is shut, and it owns nothing
			return
		}
		m.repair()
		return
	}
	t := m.table()
	if t == nil || m.lapsed || m.lease.mine.UID == "" {
		return
	}
	v := m.view()
	v.Busy = !m.mayWrite(t)
	next := planner.Propose(v)
	m.apply(next)
	switch {
	case next.Namesake != "":
		m.yield(next.Namesake)
	case next.Err != nil:
		m.invalid(next.Err)
	case next.Table != nil:
		for _, s := range next.Transfers.Slots() {
			m.slots[s].state, m.slots[s].sentAt = sent, t.Epoch
		}
		m.send(next.Table, false)
	}
}

// mayWrite reports whether a change of the table may be sent now.
func (m *Member) mayWrite(t *table.Table) bool {
	if m.phase == parting || m.swap.underWay || m.swap.refused == m.snap.Version || !m.due(m.swap.retryAt) {
		return false
	}
	if !m.trail.follows(m.snap.Version) {
		return false // the watch or the Leases will soon clear that up
	}
	if m.behindLeases(t) {
		m.read.wanted = true // a lagging watch or an old copy: confirm decides
		return false
	}
	return true
}

// apply stores the planner's memory and carries out its proposal, except the change of the table.
func (m *Member) apply(p planner.Proposal) {
	m.planner = p.Memory
	m.at(p.Again)
	for _, serial := range p.Reads {
		m.serial = serial
		m.do(ReadLoads{Serial: serial})
	}
	for _, n := range p.Notices {
		m.do(Notify(n))
	}
}

// invalid reports that a change was not written. An invalid table would stop every member (rule R4).
func (m *Member) invalid(err error) {
	m.note("InvalidTable", true,
		"a change of the table was not written, since the result would be invalid: %v; trying again", err)
	m.swap.retryAt = m.now.Mono + m.cfg.RetryPeriod
}

func (m *Member) send(t *table.Table, create bool) {
	if err := t.Valid(); err != nil {
		m.invalid(err)
		return
	}
	m.swap.underWay, m.swap.serial, m.swap.version = true, m.nextSerial(), m.snap.Version
	m.swap.sent = m.now.Mono
	if create {
		m.do(CreateTable{Serial: m.swap.serial, Table: t, Timeout: m.timeout()})
		return
	}
	m.do(Swap{Serial: m.swap.serial, Table: t, UID: m.snap.UID, Version: m.snap.Version, Timeout: m.timeout()})
}

func (m *Member) swapped(e Swapped) {
	if !m.swap.underWay || e.Serial != m.swap.serial {
		return
	}
	m.swap.underWay = false
	m.swap.retryAt = 0
	m.swap.slow = e.Outcome == OutcomeUnknown || m.now.Mono-m.swap.sent > m.cfg.WriteTimeout/2
	if e.Outcome == OutcomeDone {
		m.swap.conflicts, m.swap.unknown = 0, ""
		m.believe(e.Snapshot, false)
		m.trail.prove(e.Snapshot.Version)
		return
	}
	if e.Outcome == OutcomeUnknown {
		m.swap.unknown = m.swap.version
	} else {
		// The swap did not and will not happen, so its transfers are no longer in flight.
		for i := range m.slots {
			if m.slots[i].state == sent {
				m.slots[i].state = drained
			}
		}
	}
	switch e.Outcome {
	case OutcomeConflict, OutcomeMissing:
		m.swap.refused = m.swap.version // a newer version may have been read already
		// The jitter grows, so that many writers do not keep conflicting.
		m.swap.conflicts++
		m.swap.retryAt = m.now.Mono + m.jitter(m.cfg.Coalesce/2<<min(m.swap.conflicts-1, 6))
		m.readSoon()
	case OutcomeUnknown:
		m.readSoon()
		m.swap.retryAt = m.now.Mono + m.cfg.Coalesce
	case OutcomeFailed, OutcomeDone:
		m.swap.retryAt = m.now.Mono + m.cfg.RetryPeriod/8 + m.jitter(m.cfg.RetryPeriod/8)
	}
}

// waited starts the clock if something is waiting, and resets it otherwise. It reports whether the delay has passed. If
// not, it requests a Tick.
func (m *Member) waited(clock *time.Duration, waiting bool, delay time.Duration) bool {
	if !waiting {
		*clock = 0
		return false
	}
	if *clock == 0 {
		*clock = max(m.now.Mono, 1)
	}
	return m.due(*clock + delay)
}
