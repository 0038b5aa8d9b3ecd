package member

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// eligible returns the members that may get slots now. A joiner waits for JoinDelay, so that members that start
// together are planned together. It does not wait while slots have no owner, or to take over from a dead member.
// hold says that slots of live members stay where they are.
func (m *Member) eligible(t *table.Table, dead []string) (eligible map[string]bool, hold bool) {
	urgent := len(dead) > 0
	var free slot.Set
	owned := false
	hasSlots := map[string]bool{}
	for _, r := range t.Runs {
		if t.IsDuty(r.Slots.First) {
			continue // a new duty is no reason to plan a joiner early
		}
		if r.Owner == "" {
			free.AddRange(r.Slots)
		} else {
			owned = true
		}
		hasSlots[r.Owner], hasSlots[r.Next] = true, true
	}
	if owned {
		m.plan.fresh = 0
		urgent = urgent || !free.Empty()
	} else if m.waited(&m.plan.fresh, true, m.cfg.JoinDelay) {
		urgent = true
	}
	delay := m.cfg.JoinDelay
	if mixed(t) {
		delay = m.cfg.RolloutDelay
	}
	fit, hold := m.fit(t, dead)
	// Members that joined within JoinDelay of an eligible one are planned with it.
	early := time.Duration(0)
	for id := range fit {
		at := m.plan.seen[id] + delay
		if m.now.Mono < at && !(urgent && hasSlots[id]) {
			m.at(at)
		}
		if m.now.Mono >= at && !hasSlots[id] {
			early = m.cfg.JoinDelay
		}
	}
	for id := range fit {
		if !urgent && m.now.Mono < m.plan.seen[id]+delay-early {
			delete(fit, id)
		}
	}
	return fit, hold
}

// fit returns the members that can take slots: those that renew on time and are neither on probation nor drained. If
// there are none, it returns drained ones: they are better than none. If there are none of these either, it returns
// those that are not held dead: a slow member is better than none. hold says that slots of live members stay where they
// are: moves are paused, or only drained members could take slots (rule R19).
func (m *Member) fit(t *table.Table, dead []string) (fit map[string]bool, hold bool) {
	able := func(other table.Member) bool {
		onTime := other.ID == m.cfg.Self.ID || m.renewsOnTime(other.ID)
		return onTime && !slices.Contains(dead, other.ID) && !m.onProbation(t, other)
	}
	there := func(other table.Member) bool { return !slices.Contains(dead, other.ID) && !m.dead(other.ID) }
	for _, can := range []func(table.Member) bool{able, there} {
		for _, drained := range []bool{false, true} {
			fit = make(map[string]bool, len(t.Members))
			for _, other := range t.Members {
				if !other.Leaving && t.Drained(other.ID) == drained && can(other) {
					fit[other.ID] = true
				}
			}
			if len(fit) > 0 {
				return fit, drained || t.Paused()
			}
		}
	}
	return fit, t.Paused()
}

const (
	// crashMemory is how long the expel of a replica counts.
	crashMemory = 10 * time.Minute
	// probation is how many seconds a replica that crashes in a loop has to be up before it gets slots.
	probation = 5 * 60
)

// onProbation says that a member's replica was expelled twice within crashMemory and has not been up for long enough
// since.
func (m *Member) onProbation(t *table.Table, other table.Member) bool {
	if m.clockDistance(other.Joined) >= probation {
		return false
	}
	return m.expels(t, other.Pod) >= 2
}

// expels counts how often a replica was expelled within crashMemory.
func (m *Member) expels(t *table.Table, pod string) int {
	n := 0
	for _, e := range t.Expels {
		if e.Pod == pod && m.clockDistance(e.At) < int64(crashMemory.Seconds()) {
			n++
		}
	}
	return n
}

// mixed says that the members have several builds, but for one that a canary sets apart.
func mixed(t *table.Table) bool {
	members := plain(t)
	for _, other := range members {
		if other.Build != members[0].Build {
			return true
		}
	}
	return false
}

// rolloutTime is how long after the last join several builds count as a rollout. Two builds may also stay side by side.
const rolloutTime = 10 * time.Minute

// rollout says that a rollout is going on: most slots will soon move once more.
func (m *Member) rollout(t *table.Table) bool {
	return mixed(t) && m.clockDistance(m.lastJoined(t).Joined) < int64(rolloutTime.Seconds())
}

// lastJoined is the member that joined last. It ignores members that claim to join in ten minutes or later: their
// clocks are wrong. Nor is it one that a canary sets apart.
func (m *Member) lastJoined(t *table.Table) (last table.Member) {
	for _, other := range plain(t) {
		if other.Joined >= last.Joined && other.Joined-m.now.Wall < int64(rolloutTime.Seconds()) {
			last = other
		}
	}
	return last
}
