package member

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
)

// watch is this member's view of the other members' Leases (rule R1).
//
// Waits for others are measured in heard time. Heard time advances when the member sees its own renewal come back
// through the watch that shows the others' Leases. That proves that it renews and reads. So when the member stalls, or
// its watch lags, its judgment of others is delayed by as much.
type watch struct {
	serial uint64
	all    bool
	ids    []string
	// complete: the current watch has delivered its first answer.
	complete bool
	// since is the version of the table when the watch was requested. The watch shows newer Leases.
	since string
	heard time.Duration
	// echo is when this member's own Lease was last seen to change.
	echo    time.Duration
	version string
	others  map[string]*other
	// step is by how much the last echo advanced heard. capped is set if more time had passed.
	step   time.Duration
	capped bool
	// suspects is set if at the last echo some Lease had been silent for nearly a lease.
	suspects bool
}

// other is the state of another member's Lease.
type other struct {
	lease   Lease
	missing bool
	// renewals counts the renewals seen, up to aliveAfter.
	renewals int
	// since is the heard time at which the Lease was last seen to change. It is pending until the next echo, so that it is
	// never too early.
	since   time.Duration
	pending bool
	// seen is when the change was seen, as Time.Mono.
	seen time.Duration
	// shut is the heard time at which the Lease was first seen with "shut" after its gate may have been open. Until the
	// next echo shutting is set instead.
	shut     time.Duration
	shutting bool
	// older is set if the process was seen to create or renew its Lease, and cannot read the newest format (rules R18,
	// R19).
	older bool
}

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

func (m *Member) leasesSeen(e LeasesSeen) {
	if e.Watch != m.watch.serial {
		return
	}
	seen := map[string]bool{}
	echoed := false
	for _, l := range e.Leases {
		seen[l.ID] = true
		if l.TableUID != "" && l.Epoch > m.epochs[l.TableUID] {
			m.epochs[l.TableUID], m.epochsAt = l.Epoch, m.now.Mono
		}
		if l.ID == m.cfg.Self.ID {
			echoed = m.echoed(l) || echoed
			continue
		}
		o := m.watch.others[l.ID]
		if o == nil {
			o = &other{}
			m.watch.others[l.ID] = o
		}
		if o.missing || o.lease.UID != l.UID || o.lease.Version != l.Version {
			was := *o
			*o = other{lease: l, pending: true, seen: m.now.Mono, shut: was.shut, shutting: was.shutting}
			// A Lease in a list may be left over from a process that has ended.
			o.older = olderLease(l) && (was.lease.UID == l.UID || m.watch.complete && !e.Complete)
			if was.lease.UID == l.UID {
				o.renewals = min(was.renewals+1, aliveAfter)
			}
			// A member that has seen no table has not worked.
			if !l.Open && l.Epoch > 0 && (was.lease.Open || was.lease.UID == "") {
				o.shutting = true
			}
		}
	}
	for _, id := range e.Gone {
		m.missing(id, m.watch.all && m.watch.complete)
	}
	if e.Complete {
		m.watch.complete = true
		if m.watch.all {
			m.trail.prove(m.watch.since)
		}
		for id := range m.watch.others {
			if !seen[id] {
				if m.watch.all || slices.Contains(m.watch.ids, id) {
					m.missing(id, false)
				} else {
					delete(m.watch.others, id) // if it is watched again, its wait restarts (rule R3)
				}
			}
		}
		if !seen[m.cfg.Self.ID] {
			m.lease.next = m.now.Mono // renew to find out whether the Lease is gone
		}
	}
	if m.watch.complete {
		m.expectMembers()
	}
	if echoed {
		m.settlePending()
	}
}

// expectMembers records watched members without a Lease as missing.
func (m *Member) expectMembers() {
	t := m.table()
	if t == nil {
		return
	}
	for _, other := range t.Members {
		if other.ID != m.cfg.Self.ID && m.watch.others[other.ID] == nil &&
			(m.watch.all || slices.Contains(m.watch.ids, other.ID)) {
			m.missing(other.ID, false)
		}
	}
}

// echoed records that this member's own renewal came back. It reports whether it was a new one.
func (m *Member) echoed(l Lease) bool {
	if l.UID != m.lease.mine.UID {
		m.lease.next = m.now.Mono // it was replaced: renew to find out
		return false
	}
	if l.Version == m.watch.version {
		return false
	}
	m.watch.version = l.Version
	if m.watch.echo > 0 {
		gap := m.now.Mono - m.watch.echo
		quarter := m.cfg.LeaseDuration / 4
		m.watch.capped = gap > quarter
		m.watch.step = min(gap, quarter)
		m.watch.heard += m.watch.step
	} else {
		m.watch.capped = true
	}
	m.watch.echo = m.now.Mono
	return true
}

// settlePending sets, at an echo, the heard time of what was seen since the last one.
func (m *Member) settlePending() {
	m.watch.suspects = false
	for _, o := range m.watch.others {
		silence := m.watch.heard - o.since
		if !o.pending && silence >= m.cfg.LeaseDuration-m.period() && silence < m.cfg.LeaseDuration {
			m.watch.suspects = true
		}
		if o.pending {
			o.pending, o.since = false, m.watch.heard
			if !m.watch.capped && o.seen > 0 {
				o.since -= min(m.watch.step, m.now.Mono-o.seen) // the echo proves that the watch kept up since then
			}
		}
		if o.shutting {
			o.shutting, o.shut = false, m.watch.heard
		}
	}
	if m.recovery.on && m.recovery.pending {
		m.recovery.pending, m.recovery.since = false, m.watch.heard
	}
}

// missing records that a watched Lease does not exist. The first sight restarts the wait: the member may be ending, or
// a person deleted the Lease. From then on the Lease counts as unchanged (rule R1). The wait does not restart if the
// member was held dead before and the watch is gapless, so that no renewal can have been missed. Then another planner
// has deleted the Lease, and may die before it expels the member.
func (m *Member) missing(id string, gapless bool) {
	if id == m.cfg.Self.ID {
		m.lease.next = m.now.Mono
		return
	}
	o := m.watch.others[id]
	if o == nil {
		m.watch.others[id] = &other{missing: true, pending: true}
		return
	}
	if !o.missing {
		pending := o.pending || !(gapless && m.dead(id))
		*o = other{lease: Lease{ID: id, LongestWrite: o.lease.LongestWrite}, missing: true, since: o.since, pending: pending}
	}
}

// silence returns the heard time since another member's Lease last changed, or 0 for a Lease that was never seen.
func (m *Member) silence(id string) time.Duration {
	o := m.watch.others[id]
	if o == nil || o.pending {
		return 0
	}
	return m.watch.heard - o.since
}

// dead reports whether this member holds another one dead (rule R1).
func (m *Member) dead(id string) bool {
	return id != m.cfg.Self.ID && (m.toExpel[id] || m.silence(id) >= m.silenceLimit(id))
}

// renewing reports whether another member was lately seen to renew. A missing Lease does not renew (rule R6).
func (m *Member) renewing(id string) bool {
	o := m.watch.others[id]
	return o != nil && !o.missing && m.silence(id) < m.cfg.RenewDeadline
}

// renewsOnTime reports whether another member misses no renewal. Members that do may be alive, but should get no slots.
func (m *Member) renewsOnTime(id string) bool {
	o := m.watch.others[id]
	return o != nil && !o.missing && m.silence(id) < m.period()*5/2
}
