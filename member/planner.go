package member

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/plan"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// planning is the state of a planner (rules R3, R7, R17).
type planning struct {
	// seen is when each member was first seen in the table.
	seen map[string]time.Duration
	// buryAt is when the next Lease may be deleted, after a failure.
	buryAt time.Duration
	// since is when work for a planner was first noticed; 0: there is none.
	since time.Duration
	// key and target cache the last assignment and what it was made from.
	key    string
	target []string
	// looked is the version of the table that was looked at last, mourned how many were buried by then, and lookAt
	// is when to look again in any case.
	looked  string
	mourned int
	lookAt  time.Duration
	// fresh is when a table without any owner was first seen; 0: never.
	fresh time.Duration
}

// bury deletes the Leases of those held dead, before they are taken out of the table (rule R7).
func (m *Member) bury() {
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
			m.buryOne(p.ID)
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
			m.buryOne(id)
		}
		if !member && m.watch.others[id].missing {
			delete(m.watch.others, id)
		}
	}
	for id := range m.buried {
		if _, member := t.Member(id); !member && m.watch.others[id] == nil {
			delete(m.buried, id)
		}
	}
}

func (m *Member) buryOne(id string) {
	if m.burying[id] || m.buried[id] || !m.due(m.plan.buryAt) {
		return
	}
	m.burying[id] = true
	o := m.watch.others[id]
	d := DeleteLease{ID: id, Timeout: m.timeout()}
	if !o.missing {
		d.UID, d.Version = o.lease.UID, o.lease.Version
	}
	m.do(d)
}

func (m *Member) leaseDeleted(e LeaseDeleted) {
	delete(m.burying, e.ID)
	if e.ID == m.cfg.Self.ID {
		m.parted(e.Outcome)
		return
	}
	switch e.Outcome {
	case OutcomeDone, OutcomeMissing:
		m.buried[e.ID] = true
	case OutcomeConflict:
		// Alive: it renewed since it was last seen. Its wait starts anew.
		if o := m.watch.others[e.ID]; o != nil {
			o.pending, o.seen = true, m.now.Mono
		}
	case OutcomeUnknown, OutcomeFailed:
		m.plan.buryAt = m.now.Mono + m.cfg.RetryPeriod/4
	}
}

// draftPlan does a planner's duties: expels, slots without owner, fair shares.
func (m *Member) draftPlan(t *table.Table, d *draft) {
	rank := m.rank()
	if rank < 0 || m.phase != joined {
		m.plan.since = 0
		return
	}
	// With many members, many Leases change: no need to look at everything each time.
	if m.plan.since == 0 && m.plan.looked == m.snap.Version && len(m.buried) == m.plan.mourned && !m.due(m.plan.lookAt) {
		return
	}
	m.plan.looked, m.plan.mourned, m.plan.lookAt = m.snap.Version, len(m.buried), m.now.Mono+m.cfg.Coalesce
	var dead []string
	for _, other := range t.Members {
		if m.buried[other.ID] {
			dead = append(dead, other.ID)
		}
	}
	target := m.target(t, d, dead)
	before := *d
	d.own = false
	changed := m.applyPlan(t, d, dead, target)
	if !changed {
		*d = before
		m.plan.since = 0
		return
	}
	// The first planner goes ahead, the others give it a moment.
	if m.waited(&m.plan.since, true, time.Duration(rank)*m.cfg.RetryPeriod/8) {
		d.due = true
		return
	}
	*d = before
}

// target is the assignment that a planner wants, from a cache where nothing changed.
func (m *Member) target(t *table.Table, d *draft, dead []string) []string {
	ripe, tolerant := m.ripe(t, dead), m.rollout(t)
	var key strings.Builder
	key.WriteString(m.snap.Version + " " + strconv.FormatUint(fingerprint(d.next), 16))
	for _, other := range t.Members {
		key.WriteByte(' ')
		if ripe(other) {
			key.WriteByte('r')
		}
		if slices.Contains(dead, other.ID) {
			key.WriteByte('d')
		}
	}
	if tolerant {
		key.WriteString(" t")
	}
	if k := key.String(); k != m.plan.key {
		m.plan.key, m.plan.target = k, plan.Assign(m.assignment(t, d.next, dead, ripe, tolerant))
	}
	return m.plan.target
}

// assignment describes a table, which is made of t, for plan.Assign: without the dead.
func (m *Member) assignment(t, next *table.Table, dead []string, receives func(table.Member) bool, tolerant bool) plan.Input {
	in := m.planInput(next, receives)
	// Leavers plan for themselves: what they own is not touched, what is on its way from them counts for whom it goes
	// to.
	in.Members = slices.DeleteFunc(in.Members, func(p plan.Member) bool { return slices.Contains(dead, p.ID) })
	leavers := func(r table.Run) bool {
		owner, ok := t.Member(r.Owner)
		return ok && owner.Leaving && !slices.Contains(dead, r.Owner)
	}
	eachSlot(next, leavers, func(s slot.Slot, _ table.Run) { in.Moving.Add(s) })
	for i := range in.Members {
		if p := &in.Members[i]; p.Leaves {
			p.Leaves, p.Receives = false, false
		}
	}
	in.Tolerant = tolerant
	return in
}

// fingerprint tells tables with different owners apart.
func fingerprint(t *table.Table) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, r := range t.Runs {
		_, _ = h.WriteString(r.Owner + " " + r.Next + " " + r.Slots.String() + "\n")
	}
	return h.Sum64()
}

// ripe says which members may get slots now. A joiner waits a moment, in case others join or leave; not if slots
// have no owner, or somebody leaves.
func (m *Member) ripe(t *table.Table, dead []string) func(table.Member) bool {
	urgent := len(dead) > 0
	var free slot.Set
	owned := false
	for _, r := range t.Runs {
		if r.Owner == "" {
			free.AddRange(r.Slots)
		} else {
			owned = true
		}
	}
	if owned {
		m.plan.fresh = 0
		urgent = urgent || !free.Empty()
	} else if m.waited(&m.plan.fresh, true, m.cfg.JoinDelay) {
		urgent = true
	}
	fit := func(other table.Member) bool {
		return !slices.Contains(dead, other.ID) && (other.ID == m.cfg.Self.ID || m.lively(other.ID)) && !m.onProbation(t, other)
	}
	if !slices.ContainsFunc(t.Members, fit) {
		// Better a member on probation, or one that is slow, than none.
		fit = func(other table.Member) bool { return !slices.Contains(dead, other.ID) && !m.dead(other.ID) }
	}
	delay := m.cfg.JoinDelay
	if mixed(t) {
		delay = m.cfg.RolloutDelay
	}
	age := func(other table.Member) time.Duration { // beyond the delay
		m.due(m.plan.seen[other.ID] + delay)
		return m.now.Mono - m.plan.seen[other.ID] - delay
	}
	// Who came within JoinDelay after one whose time has come is planned together with that one.
	late := time.Duration(0)
	has := map[string]bool{}
	for _, r := range t.Runs {
		has[r.Owner], has[r.Next] = true, true
	}
	for _, other := range t.Members {
		if !has[other.ID] && fit(other) && age(other) >= 0 {
			late = m.cfg.JoinDelay
		}
	}
	return func(other table.Member) bool { return fit(other) && (urgent || age(other) >= -late) }
}

// planInput describes the table for plan.Assign. receives tells which members may get slots; leavers never do.
func (m *Member) planInput(t *table.Table, receives func(table.Member) bool) plan.Input {
	in := plan.Input{Owners: make([]string, t.Slots)}
	eachSlot(t, func(table.Run) bool { return true }, func(s slot.Slot, r table.Run) {
		in.Owners[s] = r.Owner
		if r.Next == "" {
			return
		}
		if next, ok := t.Member(r.Next); ok && !next.Leaving && !m.dead(r.Next) && !m.slow(r) {
			in.Owners[s] = r.Next
			in.Moving.Add(s)
		}
	})
	latest := m.lastJoined(t)
	for _, other := range t.Members {
		in.Members = append(in.Members, plan.Member{
			ID: other.ID, Weight: other.Weight, Leaves: other.Leaving || other.ID == m.cfg.Self.ID && m.phase == leaving,
			Receives: !other.Leaving && !m.dead(other.ID) && receives(other) && !(other.ID == m.cfg.Self.ID && m.phase == leaving),
			Prefer:   other.Build == latest.Build,
		})
	}
	return in
}

// slow says that a leaver had better look for somebody else to take the slots of a run: whom they move to is not
// ready, and does not renew as it should.
func (m *Member) slow(r table.Run) bool {
	return m.phase == leaving && r.Owner == m.cfg.Self.ID && !r.Ready && !m.lively(r.Next)
}

// mixed says that members of several builds are there.
func mixed(t *table.Table) bool {
	for _, other := range t.Members {
		if other.Build != t.Members[0].Build {
			return true
		}
	}
	return false
}

// rolloutTime bounds how long a rollout is believed in after the last member joined: members of two builds may also
// live side by side for good.
const rolloutTime = 10 * time.Minute

// rollout says that a rollout runs: most slots will move once more soon.
func (m *Member) rollout(t *table.Table) bool {
	return mixed(t) && m.apart(m.lastJoined(t).Joined) < int64(rolloutTime.Seconds())
}

// applyPlan writes expels and moves into the draft; it says whether there were any.
func (m *Member) applyPlan(t *table.Table, d *draft, dead []string, target []string) bool {
	changed := false
	var lost slot.Set
	for _, id := range dead {
		lost = lost.Union(d.next.Owned(id))
	}
	for _, s := range lost.Slots() {
		if target[s] == "" {
			return false // nobody could take them: the dead keep them, so that the fence wait is not forgotten
		}
	}
	if len(dead) > 0 {
		m.draftExpels(t, d, dead)
		changed = true
	}
	gained := map[string]*slot.Set{}
	expelled := map[string]*slot.Set{}
	moves := map[string]*slot.Set{}
	every := func(table.Run) bool { return true }
	eachSlot(d.next, every, func(s slot.Slot, r table.Run) {
		to := target[s]
		if to == "" || to == r.Owner || to == r.Next || d.transfers.Has(s) || d.stays.Has(s) {
			return
		}
		group := moves
		switch {
		case lost.Has(s):
			group = expelled
		case r.Owner == "":
			group = gained
		case r.Next != "":
			return // it moves already
		case r.Owner == m.cfg.Self.ID && m.slots[s].state == sent:
			return
		}
		if owner, _ := t.Member(r.Owner); owner.Leaving {
			return
		}
		if !lost.Has(s) && r.Owner != "" && !d.mayMove() {
			return
		}
		if group[to] == nil {
			group[to] = &slot.Set{}
		}
		group[to].Add(s)
	})
	give := func(group map[string]*slot.Set, cause table.Cause) {
		for _, to := range sortedKeys(group) {
			changed = true
			epoch := d.note(t.Epoch, cause, nil)
			d.update(*group[to], func(r *table.Run) {
				*r = table.Run{Slots: r.Slots, Owner: to, Epoch: epoch, Unsettled: true}
			})
		}
	}
	give(expelled, table.CauseExpelled)
	give(gained, table.CauseAssigned)
	for _, to := range sortedKeys(moves) {
		changed = true
		d.update(*moves[to], func(r *table.Run) { r.Next, r.Ready = to, false })
	}
	return changed
}

// draftExpels takes members out of the table and remembers it.
func (m *Member) draftExpels(t *table.Table, d *draft, dead []string) {
	d.edit()
	d.next.Expels = slices.DeleteFunc(d.next.Expels, func(e table.Expel) bool {
		return m.apart(e.At) >= int64(crashMemory.Seconds())
	})
	for _, id := range dead {
		gone, _ := t.Member(id)
		d.next.Remove(id)
		if gone.Pod != "" {
			d.next.Expels = append(d.next.Expels, table.Expel{Pod: gone.Pod, At: m.now.Wall})
		}
	}
	if n := len(d.next.Expels) - maxExpels; n > 0 {
		d.next.Expels = d.next.Expels[n:]
	}
}

// maxExpels bounds what the table remembers.
const maxExpels = 64
