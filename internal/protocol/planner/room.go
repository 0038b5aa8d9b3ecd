package planner

import (
	"math"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// MemoryReport is a member's report of its memory, in bytes.
type MemoryReport struct {
	// Used is the memory in use, Limit what the member may use, or 0 if unknown. Base was in use when it last had no
	// slots.
	Used, Limit, Base int64
}

// Usable is how much of its memory a member may use for slots. The rest is for pages of lists, and because reports lag.
func (m MemoryReport) Usable() int64 { return m.Limit - m.Limit/10 }

// room is this member's estimate of the memory that slots take (rule R23).
type room struct {
	growth map[string]growth
	// cost is the average memory of a slot in bytes, from the reports of members with settled slots, or 0 if unknown.
	// share is the average number of slots per owner, if cost is known.
	cost  float64
	share int
	// full is the largest fraction of its memory that a member with settled slots uses without harm.
	full float64
	// waits are slots that no member had room for in the last plan. cut is set if that plan left out something for lack of
	// memory. reported is set once the wait was reported.
	waits         slot.Set
	cut, reported bool
}

// growth tracks how the slots of a member change.
type growth struct {
	// slots is the number in the table, counted the number that the member's report includes.
	slots, counted int
	// since is when they last changed.
	since time.Duration
}

// growthPeriods is how many renewals after its slots have settled a member's memory may still grow because of them.
const growthPeriods = 5

// settled reports whether a member's report includes all of its slots.
func (p *proposer) settled(g growth) bool {
	return g.slots == g.counted && p.Now-g.since >= growthPeriods*p.RetryPeriod
}

// trackRoom tracks changes of the members' slots, and their reports of memory.
func (p *proposer) trackRoom() {
	r, t := &p.room, p.Table
	if t == nil || !slices.ContainsFunc(t.Members, func(m table.Member) bool { return p.MemoryOf(m.ID).Limit > 0 }) {
		*r = room{}
		return
	}
	slots, moving := map[string]int{}, map[string]bool{}
	for _, run := range t.Runs {
		if t.IsDuty(run.Slots.First) {
			continue
		}
		n := run.Slots.Len()
		slots[run.Owner] += n
		moving[run.Owner] = moving[run.Owner] || run.Unsettled
		if run.Next != "" {
			slots[run.Next] += n
			moving[run.Next] = true
		}
	}
	before := r.growth
	r.growth = make(map[string]growth, len(t.Members))
	used, counted := 0.0, 0
	r.full = 0
	for _, m := range t.Members {
		g, known := before[m.ID]
		n := slots[m.ID]
		switch {
		case !known && n == 0:
			g.since = -growthPeriods * p.RetryPeriod // nothing to wait for
		case !known:
			g = growth{slots: n, counted: n, since: p.Now}
		case n != g.slots || moving[m.ID]:
			g.since = p.Now
		}
		g.slots, g.counted = n, min(g.counted, n)
		if p.Now-g.since >= growthPeriods*p.RetryPeriod {
			g.counted = n
		}
		r.growth[m.ID] = g
		if report := p.MemoryOf(m.ID); report.Limit > 0 && p.settled(g) && n > 0 {
			used += float64(max(report.Used-report.Base, 0))
			counted += n
			r.full = max(r.full, float64(report.Used)/float64(report.Limit))
		}
	}
	delete(slots, "")
	r.share = int(t.Slots) / max(len(slots), 1)
	if counted > 0 {
		r.cost = max(used/float64(counted), 1)
	}
}

// roomOf returns how many more slots a member can take, by its last report. limited is false if that is unknown. last
// is true if the member need not take more slots after these.
func (p *proposer) roomOf(id string, last bool) (n int, settled, limited bool) {
	report, g := p.MemoryOf(id), p.room.growth[id]
	if report.Limit == 0 {
		return 0, false, false
	}
	usable, cost := report.Usable(), p.room.cost
	if last {
		usable = max(usable, report.Used/2+report.Limit/2, int64(p.room.full*float64(report.Limit)))
	}
	free := float64(usable - report.Used)
	settled = p.settled(g)
	switch {
	case free <= 0:
		return 0, settled, true
	case cost == 0:
		return max(0, p.room.share-(g.slots-g.counted)), settled, true
	case settled && g.slots > 0:
		cost = max(cost, float64(report.Used-report.Base)/float64(g.slots))
	}
	return max(0, int(free/cost)-(g.slots-g.counted)), settled, true
}

// fitMemory reduces the target of a plan to what members have memory for (rule R23).
//
// If everything that needs an owner fits, it goes at once. Members that use nearly all of their memory, perhaps for
// garbage, also take slots then: they count with half of the rest, or with what other members live with. Otherwise
// members get half of what they have room for at a time, and no more until their reports include that, since work also
// takes memory.
func (p *proposer) fitMemory(t *table.Table, in plan.Input, target []string) []string {
	r := &p.room
	r.waits, r.cut = slot.Set{}, false
	if r.growth == nil {
		return target
	}
	fit := plan.FitInput{Owners: in.Owners, Target: target, Room: map[string]int{}}
	stays := map[string]bool{}
	for _, m := range in.Members {
		stays[m.ID] = !m.Leaves
		if m.Receives && !m.Leaves {
			fit.Receives = append(fit.Receives, m.ID)
		}
	}
	slices.Sort(fit.Receives)
	fit.Stays = func(id string) bool { return stays[id] }
	pins := t.PinsBySlot()
	fit.Instead = func(s int, id string) bool {
		other, _ := t.Member(id)
		labels, pinned := pins[slot.Slot(s)]
		sameSide := !t.Canary.On() || ofBuild(t, id) == ofBuild(t, target[s])
		return sameSide && (!pinned || table.HasLabels(other.Labels, labels))
	}
	if r.cost == 0 && !slices.ContainsFunc(in.Owners, func(id string) bool { return id != "" && !stays[id] }) {
		return target // a new rota
	}
	half := map[string]int{}
	for _, id := range fit.Receives {
		if n, _, limited := p.roomOf(id, true); limited {
			fit.Room[id] = n
		}
		if n, settled, limited := p.roomOf(id, false); limited {
			half[id] = (n + 1) / 2
			if !settled {
				half[id] = 0
			}
		}
	}
	owners, waits := plan.Fit(fit)
	if !waits.Empty() {
		fit.Room = half
		owners, r.waits = plan.Fit(fit)
	}
	r.cut = !slices.Equal(owners, target)
	return owners
}

// noticeRoom reports once that slots wait because no member has memory for them.
func (p *proposer) noticeRoom() {
	r := &p.room
	if r.reported = r.reported && !r.waits.Empty(); !r.reported && !r.waits.Empty() && p.Rank == 0 {
		r.reported = true
		p.notice("NoRoom", true, "slots %v have no owner for now: by their reports of memory, members lack room for all of "+
			"them. They get owners once reports show room for them. Start another member, or raise the memory limit", r.waits)
	}
}

// Spare returns the memory that a member's slots take, and the room that the others have for them if it goes, for the
// member where the difference is worst. ok is false with fewer than two members, or if some report no limit.
func Spare(members []MemoryReport) (need, room int64, ok bool) {
	free := int64(0)
	for _, m := range members {
		if m.Limit == 0 {
			return 0, 0, false
		}
		free += max(m.Usable()-m.Used, 0)
	}
	worst := int64(math.MinInt64)
	for _, m := range members {
		takes, others := max(m.Used-m.Base, 0), free-max(m.Usable()-m.Used, 0)
		if takes-others > worst {
			worst, need, room = takes-others, takes, others
		}
	}
	return need, room, len(members) > 1
}
