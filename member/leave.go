package member

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/resourceversion"
	"github.com/rota-dev/rota/plan"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/table"
)

// leave begins a graceful end (rule R9).
func (m *Member) leave() {
	switch m.phase {
	case starting:
		if m.lease.underWay {
			m.phase = parting // the Lease may exist by now
			m.part()
			return
		}
		m.stop(nil, false)
	case joining:
		m.phase = leaving // followTable goes on, once a swap under way is answered
	case joined:
		m.phase = leaving
		m.note("Leaving", false, "handing over what is owned")
	case leaving, parting, ended:
	}
}

// part deletes the member's own Lease, the last thing it does.
func (m *Member) part() {
	m.phase = parting
	m.shutAll()
	if m.lease.underWay {
		return // its answer tells the version to be deleted; see keepParting
	}
	m.keepParting()
}

// keepParting deletes the Lease once no renewal is under way.
func (m *Member) keepParting() {
	id := m.cfg.Self.ID
	switch {
	case m.lease.underWay || m.burying[id]:
	case m.lease.mine.UID == "":
		m.stop(nil, false)
	default:
		m.burying[id] = true
		m.do(DeleteLease{ID: id, UID: m.lease.mine.UID, Version: m.lease.mine.Version, Timeout: m.cfg.WriteTimeout})
	}
}

func (m *Member) parted(o Outcome) {
	if o == OutcomeUnknown || o == OutcomeFailed {
		// Others will take the Lease away. Nothing is lost by it: the table does not name this member any more.
		err := fmt.Errorf("lease of member %s could not be deleted; it will be removed when it has expired", m.cfg.Self.ID)
		m.stop(errors.Join(m.refused, err), false)
		return
	}
	m.stop(m.refused, false)
}

// draftLeave plans a leaver's moves and removes it at the end. It says whether the draft is complete.
func (m *Member) draftLeave(t *table.Table, d *draft) bool {
	id := m.cfg.Self.ID
	self, named := t.Member(id)
	if !named {
		d.supersede()
		return true
	}
	if self.Leaving && ownsNothing(t, id) && !m.transferUnknown() {
		d.edit().Remove(id)
		d.due = true
		return true
	}
	if !self.Leaving {
		self.Leaving = true
		d.edit().Put(self)
		d.due = true
	}
	// Without anybody to hand to, the slots are drained and given up to nobody.
	in := m.planInput(t, func(other table.Member) bool {
		return m.watch.others[other.ID] == nil || m.lively(other.ID)
	})
	in.Only = id
	in.Tolerant = m.rollout(t)
	if m.draftMoves(t, d, plan.Assign(in)) {
		d.due = true
	}
	return false
}

// inDoubt says that a swap that was sent may still happen: nobody knows how it ended, and no later version of the table
// was seen.
func (m *Member) inDoubt() bool {
	return m.swap.unknown != "" && resourceversion.Compare(m.snap.Version, m.swap.unknown) <= 0
}

// transferUnknown says that a transfer was sent of which nothing is known yet.
func (m *Member) transferUnknown() bool {
	for i := range m.slots {
		if m.slots[i].state == sent {
			return true
		}
	}
	return false
}

func ownsNothing(t *table.Table, id string) bool {
	owned := t.Owned(id)
	return owned.Empty()
}

// draftMoves sets the next owner of this member's slots where it differs from target. It says whether any did.
func (m *Member) draftMoves(t *table.Table, d *draft, target []string) bool {
	self := m.cfg.Self.ID
	changes := map[string]*slot.Set{}
	eachSlot(t, func(r table.Run) bool { return r.Owner == self }, func(s slot.Slot, r table.Run) {
		to := target[s]
		if to == r.Next || to == self || m.slots[s].state == sent || to != "" && !d.mayMove() {
			return
		}
		if changes[to] == nil {
			changes[to] = &slot.Set{}
		}
		changes[to].Add(s)
	})
	for _, to := range sortedKeys(changes) {
		set := changes[to]
		d.update(*set, func(r *table.Run) { r.Next, r.Ready = to, false })
	}
	return len(changes) > 0
}

// draftJoin enters this member into the table, and takes out the earlier incarnation of its container (rule R9).
func (m *Member) draftJoin(t *table.Table, d *draft) {
	if !m.watch.all || !m.watch.complete {
		return
	}
	if other, ok := m.namesake(t); ok {
		m.meet(other, d)
		return
	}
	if p, ok := m.predecessor(t); ok && !m.buried[p.ID] {
		return // bury asks for it
	} else if ok {
		m.draftExpels(t, d, []string{p.ID})
	}
	self := m.cfg.Self
	self.Joined, self.Leaving = m.now.Wall, false
	d.edit().Put(self)
	d.due = true
	if p, ok := m.predecessor(t); ok {
		epoch := d.note(t.Epoch, table.CauseExpelled, nil)
		d.update(t.Owned(p.ID), func(r *table.Run) {
			*r = table.Run{Slots: r.Slots, Owner: self.ID, Epoch: epoch, Unsettled: true}
		})
	}
}

// predecessor is the member that ran in this same container before it was restarted. One that was restarted before
// does not take its slots over: it may be crashing in a loop, and the others expel it in due time.
func (m *Member) predecessor(t *table.Table) (table.Member, bool) {
	if m.cfg.Self.PodUID == "" || m.phase != joining || m.expels(t, m.cfg.Self.Pod) > 0 {
		return table.Member{}, false
	}
	for _, p := range t.Members {
		if p.ID != m.cfg.Self.ID && p.PodUID == m.cfg.Self.PodUID && p.Container == m.cfg.Self.Container {
			return p, true
		}
	}
	return table.Member{}, false
}

// ErrIdentity is wrapped by the error of a Stop because another process has this one's identity.
var ErrIdentity = errors.New("the identity is in use")

// aliveAfter is how many renewals of a namesake must be seen: the first may be older than what a list brought.
const aliveAfter = 2

// namesake is a member whose identity is this one's, and that may still work. It is none that ran in this very
// container, of which there is one process at a time, nor one on its way out.
func (m *Member) namesake(t *table.Table) (table.Member, bool) {
	self := m.cfg.Self
	for _, other := range t.Members {
		same := self.Pod != "" && other.Pod == self.Pod && other.Container == self.Container &&
			(other.PodUID == "" || other.PodUID != self.PodUID)
		if same && !other.Leaving && !m.dead(other.ID) && !slices.Contains(m.cfg.Former, other.ID) {
			return other, true
		}
	}
	return table.Member{}, false
}

// meet gives up where a namesake is alive. Where it is not, its Lease will tell.
func (m *Member) meet(other table.Member, d *draft) {
	pod := m.cfg.Self.Pod
	if o := m.watch.others[other.ID]; o == nil || o.missing || o.renewals < aliveAfter {
		if !m.met {
			m.met = true
			m.note("IdentityInUse", false, "member %s has this replica's pod name, %s; waiting until its Lease shows whether it is alive", other.ID, pod)
		}
		return
	}
	if m.inDoubt() {
		d.supersede()
		return
	}
	m.refused = fmt.Errorf("%w: member %s, which renews its Lease, has the same pod name, %s: give every replica a pod name of its own", ErrIdentity, other.ID, pod)
	m.note("IdentityInUse", true, "member %s ends: %v", m.cfg.Self.ID, m.refused)
	m.part()
}

// probation is how long a crash-looping member has to be up before it gets slots.
const (
	probation   = 5 * 60 // seconds
	crashMemory = 10 * time.Minute
)

// onProbation says that a member's replica was expelled twice in ten minutes and has not been up for five since.
func (m *Member) onProbation(t *table.Table, other table.Member) bool {
	if m.apart(other.Joined) >= probation {
		return false
	}
	return m.expels(t, other.Pod) >= 2
}

// apart is how many seconds another's wall clock is away from this member's, either way. Whoever wrote that time may
// have a clock that is wrong: what lies ahead is as long over as what lies behind, so that such a clock cannot have it
// believed for longer.
func (m *Member) apart(wall int64) int64 {
	d := m.now.Wall - wall
	return max(d, -d)
}

// lastJoined is the member that joined last, but for those that say that they will ten minutes from now or later: their
// clocks are wrong.
func (m *Member) lastJoined(t *table.Table) (last table.Member) {
	for _, other := range t.Members {
		if other.Joined >= last.Joined && other.Joined-m.now.Wall < int64(rolloutTime.Seconds()) {
			last = other
		}
	}
	return last
}

// skewed is from how many seconds on people are told that wall clocks differ. News of a member that joins may come
// later than that by a while.
const skewed = 120

// checkClock tells people where a member that joined just now has another wall clock than this one, which plans.
func (m *Member) checkClock(other table.Member) {
	if other.ID == m.cfg.Self.ID || m.now.Wall == 0 || m.apart(other.Joined) < skewed || m.rank() != 0 {
		return
	}
	m.note("ClockSkew", true, "member %s joined %d s away from this member's wall clock: have their clocks synchronized; "+
		"until then rollouts and crash loops may be taken for none", other.ID, m.apart(other.Joined))
}

// expels counts how often a replica was expelled lately.
func (m *Member) expels(t *table.Table, pod string) int {
	n := 0
	for _, e := range t.Expels {
		if e.Pod == pod && m.apart(e.At) < int64(crashMemory.Seconds()) {
			n++
		}
	}
	return n
}
