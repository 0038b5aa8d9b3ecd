package member

import (
	"cmp"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/table"
)

// watch is what the member knows of the others' Leases (rule R1).
//
// Waits are measured in heard time: it passes only when the member sees its own renewal come back through the
// watch by which it judges the others, which shows that it renews and reads. So a stall of its own, or a watch
// that lags, holds back its judgement as much as its view.
type watch struct {
	serial uint64
	all    bool
	ids    []string
	// complete: the first answer to the current request has come.
	complete bool
	// since is the version of the table that was known when the request was made. What it tells is newer.
	since string
	heard time.Duration
	// echo is when the member's own Lease was last seen to change.
	echo    time.Duration
	version string
	others  map[string]*other
	// step is by how much the last echo moved heard; capped: less than the time that passed.
	step   time.Duration
	capped bool
	// suspects says that, at the last echo, some Lease had been silent for nearly as long as it takes.
	suspects bool
}

// other is what is known of another member's Lease.
type other struct {
	lease   Lease
	missing bool
	// renewals counts those seen, up to aliveAfter.
	renewals int
	// since is the heard time at which the Lease was last seen to change; pending until the next echo, so that a
	// change is never dated back.
	since   time.Duration
	pending bool
	// seen is when the change was seen, by the own clock.
	seen time.Duration
	// shut is the heard time at which the Lease was first seen to say that its gate is shut, after it may have been
	// open; until the next echo it is shutting.
	shut     time.Duration
	shutting bool
}

func newWatch() watch { return watch{others: map[string]*other{}} }

// chooseWatch asks for the Leases that this member has to see: all of them for planners and in trouble, otherwise
// those of the planners and of whom it hands slots to, so that the load on the API server stays O(members).
func (m *Member) chooseWatch() {
	if m.lease.mine.UID == "" || m.snap.Table == nil && !m.trouble.on {
		return
	}
	// A newcomer looks at all Leases once, for what they tell of the table (rule R16).
	asks := m.asksLeases()
	all := m.trouble.on || m.phase == joining || m.isPlanner() || asks
	var ids []string
	if !all {
		ids = m.watchedIDs()
	}
	anew := m.watch.serial == 0 || asks && m.watch.complete && resourceversion.Compare(m.watch.since, m.snap.Version) < 0
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
	for _, p := range m.candidates(t) {
		// Those held dead are still watched: they may come back.
		ids = append(ids, p)
		if len(m.livePlanners(ids[1:])) == planners {
			break
		}
	}
	for _, r := range t.Runs {
		if r.Owner == m.cfg.Self.ID && r.Next != "" {
			ids = append(ids, r.Next)
		}
	}
	if p, ok := m.predecessor(t); ok {
		ids = append(ids, p.ID)
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
			m.epochs[l.TableUID], m.toldAt = l.Epoch, m.now.Mono
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
			// A member that knows no table has worked by none.
			was := *o
			*o = other{lease: l, pending: true, seen: m.now.Mono, shut: was.shut, shutting: was.shutting}
			if was.lease.UID == l.UID {
				o.renewals = min(was.renewals+1, aliveAfter)
			}
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
			m.trail.vouch(m.watch.since)
		}
		for id := range m.watch.others {
			if !seen[id] {
				if m.watch.all || slices.Contains(m.watch.ids, id) {
					m.missing(id, false)
				} else {
					delete(m.watch.others, id) // watched anew, its wait starts anew (rule R3)
				}
			}
		}
		if !seen[m.cfg.Self.ID] {
			m.lease.next = m.now.Mono // find out whether the own Lease is gone
		}
	}
	if m.watch.complete {
		m.expectMembers()
	}
	if echoed {
		m.settlePending()
	}
}

// expectMembers enters the members that are watched but have no Lease.
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

// echoed notes that the member's own renewal came back; it says whether it was a new one.
func (m *Member) echoed(l Lease) bool {
	if l.UID != m.lease.mine.UID {
		m.lease.next = m.now.Mono // somebody replaced it: find out
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

func (m *Member) settlePending() {
	m.watch.suspects = false
	for _, o := range m.watch.others {
		silence := m.watch.heard - o.since
		if !o.pending && silence >= m.cfg.LeaseDuration-m.cfg.RetryPeriod && silence < m.cfg.LeaseDuration {
			m.watch.suspects = true
		}
		if o.pending {
			o.pending, o.since = false, m.watch.heard
			if !m.watch.capped && o.seen > 0 {
				o.since -= min(m.watch.step, m.now.Mono-o.seen) // the echo vouches for the time since it was seen
			}
		}
		if o.shutting {
			o.shutting, o.shut = false, m.watch.heard
		}
	}
	if m.trouble.on && m.trouble.pending {
		m.trouble.pending, m.trouble.since = false, m.watch.heard
	}
}

// missing notes that a watched Lease is not there. The first sight restarts the wait: its owner may be about to
// end, or somebody deleted it by hand. From then on it counts as unchanged (rule R1). Not so where a member was held
// dead before and gapless says that no renewal can have gone unseen: then another planner is about to expel it, and may
// die over it.
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
		*o = other{lease: Lease{ID: id}, missing: true, since: o.since, pending: pending}
	}
}

// silence is the heard time for which another's Lease did not change; 0 for one that was never looked at.
func (m *Member) silence(id string) time.Duration {
	o := m.watch.others[id]
	if o == nil || o.pending {
		return 0
	}
	return m.watch.heard - o.since
}

// dead says that this member holds another for dead (rule R1).
func (m *Member) dead(id string) bool {
	return id != m.cfg.Self.ID && (m.buried[id] || m.silence(id) >= m.cfg.LeaseDuration)
}

// renewing says that another was lately seen to renew; a missing Lease is none (rule R6).
func (m *Member) renewing(id string) bool {
	o := m.watch.others[id]
	return o != nil && !o.missing && m.silence(id) < m.cfg.RenewDeadline
}

// lively says that another misses none of its renewals: it is a good choice for slots, though others may be alive.
func (m *Member) lively(id string) bool {
	o := m.watch.others[id]
	return o != nil && !o.missing && m.silence(id) < m.cfg.RetryPeriod*5/2
}

// planners is how many members plan (rule R3).
const planners = 3

// order is the cache of candidates, of one version of the table: leavers left out, in hash order, and the lowest and highest
// newest format among them.
type order struct {
	version string
	members []*table.Member
	ids     []string
	low     int
	high    int
}

// candidates are all members of the newest format, among those that are not held dead, in hash order. Leavers are
// none: they are busy with themselves.
func (m *Member) candidates(t *table.Table) []string {
	o := &m.order
	if o.version != m.snap.Version {
		*o = order{version: m.snap.Version}
		type hashed struct {
			hash uint64
			at   int
		}
		order := make([]hashed, 0, len(t.Members))
		for i, c := range t.Members {
			if c.Leaving {
				continue
			}
			order = append(order, hashed{xxhash.Sum64String(c.ID), i})
			o.high = max(o.high, c.MaxFormat)
			if o.low == 0 || c.MaxFormat < o.low {
				o.low = c.MaxFormat
			}
		}
		// Members are sorted by ID.
		slices.SortFunc(order, func(a, b hashed) int { return cmp.Or(cmp.Compare(a.hash, b.hash), a.at-b.at) })
		o.ids = make([]string, 0, len(order))
		for _, h := range order {
			o.members, o.ids = append(o.members, &t.Members[h.at]), append(o.ids, t.Members[h.at].ID)
		}
	}
	if o.low == o.high {
		return o.ids
	}
	newest := 0
	for _, c := range o.members {
		if !m.dead(c.ID) {
			newest = max(newest, c.MaxFormat)
		}
	}
	var ids []string
	for _, c := range o.members {
		if c.MaxFormat >= newest {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// livePlanners are the planners among ids: the first three not held dead.
func (m *Member) livePlanners(ids []string) []string {
	var live []string
	for _, id := range ids {
		if !m.dead(id) {
			live = append(live, id)
		}
		if len(live) == planners {
			break
		}
	}
	return live
}

// rank is this member's place among the planners, from 0, or -1. A member that has held another for dead for half
// a lease, and sees it in the table still, plans too, whoever else should.
func (m *Member) rank() int {
	t := m.table()
	if t == nil {
		return -1
	}
	if _, ok := t.Member(m.cfg.Self.ID); !ok {
		return -1
	}
	if i := slices.Index(m.livePlanners(m.candidates(t)), m.cfg.Self.ID); i >= 0 {
		return i
	}
	// Spread over a lease, so that not all members begin to watch everything at once.
	patience := m.cfg.LeaseDuration * time.Duration(24+xxhash.Sum64String(m.cfg.Self.ID)%16) / 16
	for id := range m.watch.others {
		if _, member := t.Member(id); member && m.dead(id) && m.silence(id) >= patience {
			return planners
		}
	}
	return -1
}

func (m *Member) isPlanner() bool { return m.rank() >= 0 }
