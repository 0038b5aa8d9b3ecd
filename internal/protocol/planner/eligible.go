package planner

import (
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// Observe handles a new version of the table. It records which members the version names. The first planner reports
// members that have just joined if their wall clocks differ from its own.
func Observe(v View) Proposal {
	p := newProposer(v)
	seen := make(map[string]time.Duration, len(v.Table.Members))
	for _, other := range v.Table.Members {
		first, known := v.planning.seen[other.ID]
		if !known {
			first = v.Now
			if len(v.planning.seen) > 0 {
				p.checkClock(other)
			}
		}
		seen[other.ID] = first
	}
	p.planning.seen = seen
	return p.proposal()
}

// maxSkew is the smallest difference of wall clocks that is reported, in seconds. It allows for a member that is seen
// late.
const maxSkew = 120

func (p *proposer) checkClock(other table.Member) {
	if other.ID == p.Self.ID || p.Wall == 0 || p.clockDistance(other.Joined) < maxSkew || p.Rank != 0 {
		return
	}
	p.notice("ClockSkew", true, "member %s joined %d s away from this member's wall clock: synchronize their clocks; "+
		"until then rollouts and crash loops may go unnoticed", other.ID, p.clockDistance(other.Joined))
}

// eligible returns the members that may get slots now. A joiner waits for JoinDelay, so that members that start
// together are planned together. It does not wait while slots have no owner, or to take over from a dead member. If
// hold is true, slots of live members stay where they are.
func (p *proposer) eligible(dead []string) (eligible map[string]bool, hold bool) {
	t := p.Table
	urgent := len(dead) > 0
	var free slot.Set
	owned := false
	hasSlots := map[string]bool{}
	for _, r := range t.Runs {
		if t.IsDuty(r.Slots.First) {
			continue // a new duty does not make a joiner urgent
		}
		if r.Owner == "" {
			free.AddRange(r.Slots)
		} else {
			owned = true
		}
		hasSlots[r.Owner], hasSlots[r.Next] = true, true
	}
	if owned {
		p.planning.fresh = 0
		urgent = urgent || !free.Empty()
	} else if p.waited(&p.planning.fresh, true, p.JoinDelay) {
		urgent = true
	}
	delay := p.JoinDelay
	if mixed(t) {
		delay = p.RolloutDelay
	}
	fit, hold := p.fit(dead)
	// Members that joined within JoinDelay of an eligible one are planned with it.
	early := time.Duration(0)
	for id := range fit {
		at := p.planning.seen[id] + delay
		if p.Now < at && !(urgent && hasSlots[id]) {
			p.at(at)
		}
		if p.Now >= at && !hasSlots[id] {
			early = p.JoinDelay
		}
	}
	for id := range fit {
		if !urgent && p.Now < p.planning.seen[id]+delay-early {
			delete(fit, id)
		}
	}
	return fit, hold
}

// fit returns the members that can take slots: those that renew on time and are neither on probation nor drained. If
// there are none, it returns drained members, and without those, members that are slow but not held dead. If hold is
// true, slots of live members stay where they are, because moves are paused or only drained members could take slots
// (rule R19).
func (p *proposer) fit(dead []string) (fit map[string]bool, hold bool) {
	t := p.Table
	able := func(other table.Member) bool {
		onTime := other.ID == p.Self.ID || p.OnTime(other.ID)
		return onTime && !slices.Contains(dead, other.ID) && !p.onProbation(other)
	}
	there := func(other table.Member) bool { return !slices.Contains(dead, other.ID) && !p.Dead(other.ID) }
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
	// probation is how long a replica that crashes in a loop must be up before it gets slots, in seconds.
	probation = 5 * 60
)

// onProbation reports whether a member's replica was expelled twice within crashMemory and has not been up for long
// enough since.
func (p *proposer) onProbation(other table.Member) bool {
	if p.clockDistance(other.Joined) >= probation {
		return false
	}
	return expels(p.Table, other.Pod, p.Wall) >= 2
}

// expels returns how often a replica was expelled within crashMemory before or after the time wall.
func expels(t *table.Table, pod string, wall int64) int {
	n := 0
	for _, e := range t.Expels {
		if e.Pod == pod && clockDistance(wall, e.At) < int64(crashMemory.Seconds()) {
			n++
		}
	}
	return n
}

// mixed reports whether the members have several builds, not counting members that a canary sets apart.
func mixed(t *table.Table) bool {
	members := plain(t)
	for _, other := range members {
		if other.Build != members[0].Build {
			return true
		}
	}
	return false
}

// rolloutTime is how long after the last join several builds count as a rollout. Two builds may also coexist for long.
const rolloutTime = 10 * time.Minute

// rollout reports whether a rollout is in progress: most slots will soon move again.
func (p *proposer) rollout() bool {
	return mixed(p.Table) && p.clockDistance(p.lastJoined(p.Table).Joined) < int64(rolloutTime.Seconds())
}

// lastJoined returns the member that joined last. It skips members whose join time is ten minutes or more in the
// future, since their clocks are wrong, and members that a canary sets apart.
func (p *proposer) lastJoined(t *table.Table) (last table.Member) {
	for _, other := range plain(t) {
		if other.Joined >= last.Joined && other.Joined-p.Wall < int64(rolloutTime.Seconds()) {
			last = other
		}
	}
	return last
}
