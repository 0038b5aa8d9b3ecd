package member

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// planning is the state of a planner (rules R3, R7, R17).
type planning struct {
	// seen is when each member was first seen in the table.
	seen map[string]time.Duration
	// deleteAt is when the next Lease may be deleted, after a failure.
	deleteAt time.Duration
	// since is when this member first found something to plan; 0: there is nothing.
	since time.Duration
	// key and target cache the last assignment and its input.
	key    string
	target []string
	// looked is the version of the table for which a plan was made last, and lookedDead how many members were to be
	// expelled then. lookAt is when to make a plan again in any case.
	looked     string
	lookedDead int
	lookAt     time.Duration
	// fresh is when a table without any owner was first seen; 0: never.
	fresh time.Duration
	// orders is since when there has been something to end of what people asked for; 0: there is nothing.
	orders time.Duration
	// duties is since when there have been duties that nobody owns; 0: there are none.
	duties time.Duration
}

// draftPlan adds what a planner does: it expels the dead, assigns slots without owner, and evens out shares.
func (m *Member) draftPlan(t *table.Table, d *draft) {
	rank := m.rank()
	if rank < 0 || m.phase != joined {
		m.plan.since, m.plan.duties = 0, 0
		return
	}
	// With many members, Leases change all the time. Do not make a plan for each change.
	same := m.plan.looked == m.snap.Version && m.plan.lookedDead == len(m.toExpel)
	if m.plan.since == 0 && same && !m.due(m.plan.lookAt) {
		return
	}
	m.plan.looked, m.plan.lookedDead, m.plan.lookAt = m.snap.Version, len(m.toExpel), m.now.Mono+m.cfg.Coalesce
	var dead []string
	for _, other := range t.Members {
		if m.toExpel[other.ID] {
			dead = append(dead, other.ID)
		}
	}
	target := m.target(t, d, dead)
	planned := *d
	planned.own = false // so that the plan changes a copy of d's table
	if !m.applyPlan(t, &planned, dead, target) {
		m.plan.since = 0
		return
	}
	if m.waited(&m.plan.since, true, headStart(rank, m.cfg.RetryPeriod)) {
		planned.due = true
		*d = planned
	}
}

// target is the assignment that a planner wants. It is cached.
func (m *Member) target(t *table.Table, d *draft, dead []string) []string {
	eligible, hold := m.eligible(t, dead)
	tolerant := m.rollout(t)
	suspended := m.suspended(d.next)
	var key strings.Builder
	key.WriteString(m.snap.Version + " " + strconv.FormatUint(fingerprint(d.next), 16))
	for _, other := range t.Members {
		key.WriteByte(' ')
		if eligible[other.ID] {
			key.WriteByte('r')
		}
		if slices.Contains(dead, other.ID) {
			key.WriteByte('d')
		}
		if len(d.next.Duties) > 0 && m.takesDuties(other) {
			key.WriteByte('t')
		}
	}
	if suspended {
		key.WriteString(" s")
	}
	if tolerant {
		key.WriteString(" t")
	}
	if hold {
		key.WriteString(" h")
	}
	if k := key.String(); k != m.plan.key {
		receives := func(other table.Member) bool { return eligible[other.ID] }
		in := m.assignment(t, d.next, dead, receives, tolerant, hold)
		m.plan.key, m.plan.target = k, m.assign(d.next, in, hold)
	}
	return m.plan.target
}

// assignment describes the table next, a draft made from t, to plan.Assign. It leaves out the dead. hold says that
// slots of live members stay where they are.
func (m *Member) assignment(
	t, next *table.Table, dead []string, receives func(table.Member) bool, tolerant, hold bool,
) plan.Input {
	in := m.planInput(next, receives)
	// Leavers plan for themselves. What they own is not touched. What moves already counts for its next owner.
	in.Members = slices.DeleteFunc(in.Members, func(p plan.Member) bool { return slices.Contains(dead, p.ID) })
	stays := func(r table.Run) bool {
		owner, ok := t.Member(r.Owner)
		return ok && (owner.Leaving || hold) && !slices.Contains(dead, r.Owner)
	}
	eachSlot(next, stays, func(s slot.Slot, _ table.Run) { in.Moving.Add(s) })
	for i := range in.Members {
		switch p := &in.Members[i]; {
		case p.Leaves:
			p.Leaves, p.Receives = false, false
		case !hold && t.Drained(p.ID):
			p.Leaves, p.Receives = true, false
		}
	}
	in.Tolerant = tolerant
	return in
}

// fingerprint hashes who owns what, who can do what, and who should have what.
func fingerprint(t *table.Table) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, r := range t.Runs {
		_, _ = h.WriteString(r.Owner + " " + r.Next + " " + r.Slots.String() + " " + t.Duty(r.Slots.First) + "\n")
	}
	for _, p := range t.Pins {
		_, _ = h.WriteString("pin " + p.Object + " " + p.Labels + "\n")
	}
	if c := &t.Canary; c.On() {
		_, _ = h.WriteString("canary " + c.Build + " " + c.State.String() + " " + strconv.Itoa(c.Step) + "\n")
	}
	last := ""
	for i := range t.Members {
		_, _ = h.WriteString(t.Members[i].Labels + "\n")
		if list := t.Members[i].Duties; i == 0 || list != last {
			last = list
			_, _ = h.WriteString(t.Members[i].ID + " ")
			_, _ = h.WriteString(list)
			_, _ = h.WriteString("\n")
		}
	}
	return h.Sum64()
}

// planInput describes the table to assign. Its slots include those of duties. receives says which members may get
// slots. Leavers never do.
func (m *Member) planInput(t *table.Table, receives func(table.Member) bool) plan.Input {
	in := plan.Input{Owners: make([]string, t.Total())}
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
		leaves := other.Leaving || other.ID == m.cfg.Self.ID && m.phase == leaving
		in.Members = append(in.Members, plan.Member{
			ID: other.ID, Weight: other.Weight, Leaves: leaves,
			Receives: !leaves && !m.dead(other.ID) && receives(other),
			Prefer:   other.Build == latest.Build,
		})
	}
	return in
}

// slow says that this leaver should find another member for the slots of a run. The next owner is not ready, and it
// does not renew on time.
func (m *Member) slow(r table.Run) bool {
	return m.phase == leaving && r.Owner == m.cfg.Self.ID && !r.Ready && !m.renewsOnTime(r.Next)
}

// applyPlan writes expels and moves into the draft. It says whether there were any.
func (m *Member) applyPlan(t *table.Table, d *draft, dead []string, target []string) bool {
	changed := false
	var lost slot.Set
	for _, id := range dead {
		lost = lost.Union(d.next.Owned(id))
	}
	for _, s := range lost.Slots() {
		if target[s] == "" && !t.IsDuty(s) {
			return false // nobody could take them. The dead keep them, so that the fence wait is not forgotten
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
	begin := m.waited(&m.plan.duties, unownedDuty(t), m.cfg.JoinDelay) // so that all have announced it
	eachSlot(d.next, every, func(s slot.Slot, r table.Run) {
		to := target[s]
		if to == "" || to == r.Owner || to == r.Next || d.transfers.Has(s) || d.stays.Has(s) {
			return
		}
		group := moves
		switch {
		case lost.Has(s):
			group = expelled
		case r.Owner == "" && t.IsDuty(s) && !begin:
			return
		case r.Owner == "" && t.IsDuty(s):
			group = expelled // nobody knows how its last owner lost it
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
			if cause == table.CauseExpelled {
				epoch = d.noteExpel(t.Epoch, m.expelWait(t, dead))
			}
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
