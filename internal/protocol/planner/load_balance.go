package planner

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
)

// This file tracks loads, and decides when planners even them out (rule R21).
//
// Members report how many workers the objects of each slot keep busy. With Config.ByLoad the first planner reads the
// reports every LoadPeriod, uses them in its plans, and is the only one that plans moves to even out loads. Safety does
// not depend on loads: whatever reports contain, the moves are ordinary ones, and few.

const (
	// loadTime is the time constant of the average of a slot's load.
	loadTime = 10 * time.Minute
	// loadYouth is how long a member must own a slot before its report of the slot's load counts. Until then the slot has
	// the load that its last owner reported.
	loadYouth = time.Minute
	// unevenReads is how many consecutive reads must find loads uneven before they are evened out.
	unevenReads = 3
	// evenReads is how many consecutive reads must find nothing to do before evening out ends. By then the new owners'
	// reports count.
	evenReads = 10
	// independentReads is how many reads in an average are nearly independent, since members report averages over two
	// minutes. deviations is by how many standard deviations loads must differ.
	independentReads, deviations = 5, 3
	// restTime is how long a slot that moved to even out loads is not moved for that again.
	restTime = 10 * time.Minute
	// hotLoad is the load, in thousandths of a worker, from which a slot is called hot.
	hotLoad = 500
	// movesPerRead is the divisor of the number of slots for the moves after each read.
	movesPerRead = 16
)

// loads is this member's view of loads while it is the first planner.
type loads struct {
	asked  bool
	serial uint64
	next   time.Duration // when to read again; 0 unless this is the first planner
	slots  []slotLoad
	// reports are the serials of the members' last reports.
	reports map[string]uint64
	// uneven and even count consecutive reads. evening is set while loads are being evened out.
	uneven, even int
	evening      bool
	// moves are the planned moves, for that version of the table.
	moves   map[slot.Slot]string
	version string
	// followed is the version of the table that the slots' owners are taken from.
	followed string
	differs  bool // some member plans by number
	// hot are the slots that were reported as hot.
	hot map[slot.Slot]bool
}

// slotLoad is the state of a slot.
type slotLoad struct {
	owner string
	since time.Duration // when it was first seen with that owner
	rests time.Duration // until when it rests
	goes  string        // the target of a move in progress that evens out loads
	// load is an average in thousandths of a worker, variance the variance of the reports. weight, from 0 to 1, is how
	// much they count.
	load, variance, weight float64
	at                     time.Duration // time of the last read that counted
	reads                  int           // reads that counted
	last                   [2]float64    // the last two reads
}

// pass adds the load n of a read. A value that differs from those before and after it does not count: pass uses the
// median of the last three (Tukey's running median). Mean and variance are weighted exponentially, by West's update
// (1979).
func (s *slotLoad) pass(now, period time.Duration, n float64) {
	last := s.last
	s.last = [2]float64{last[1], n}
	if s.reads++; s.reads >= 3 {
		n = max(min(n, last[0]), min(max(n, last[0]), last[1]))
	}
	if s.weight == 0 {
		s.at = now - period // earlier loads are unknown
	}
	gain := -math.Expm1(-float64(now-s.at) / float64(loadTime))
	s.at = now
	if s.weight == 0 {
		s.load, s.weight = n, gain
		return
	}
	s.weight += gain * (1 - s.weight)
	part, off := gain/s.weight, n-s.load
	s.load += part * off
	s.variance += part * (off*(n-s.load) - s.variance)
}

// firstPlanner reports whether this member is the one that reads loads.
func (p *proposer) firstPlanner() bool { return p.ByLoad && p.Phase == Joined && p.Rank == 0 }

// checkLoads requests the reports when they are due.
func (p *proposer) checkLoads() {
	b := &p.loads
	switch {
	case !p.firstPlanner():
		*b = loads{serial: b.serial}
		return
	case b.next == 0:
		b.next, b.slots = p.Now+p.LoadPeriod, make([]slotLoad, p.Table.Slots)
		b.reports, b.hot = map[string]uint64{}, map[slot.Slot]bool{}
	}
	b.follow(p.Now, p.Table, p.Version)
	if !b.asked && p.due(b.next) {
		b.asked, b.serial = true, p.read()
	}
}

// follow records since when slots have had their owners.
func (b *loads) follow(now time.Duration, t *table.Table, version string) {
	if b.followed == version {
		return
	}
	b.followed = version
	b.slots = slices.Clone(b.slots)
	eachHashSlot(t, func(s slot.Slot, r table.Run) {
		l := &b.slots[s]
		if r.Next != "" && b.moves[s] == r.Next {
			l.goes, l.rests = r.Next, now+restTime // even if the handover takes long
		}
		if l.owner == r.Owner {
			return
		}
		if l.goes == r.Owner && r.Owner != "" {
			l.rests = now + restTime
		}
		l.goes = ""
		// The new owner's reports soon count more than the old owner's: it may be slower or faster.
		l.owner, l.since, l.weight = r.Owner, now, min(l.weight, 0.5)
	})
}

// eachHashSlot visits all slots except duties.
func eachHashSlot(t *table.Table, visit func(slot.Slot, table.Run)) {
	eachSlot(t, func(r table.Run) bool { return !t.IsDuty(r.Slots.First) }, visit)
}

// Learn handles member reports that were read for a serial in Proposal.Reads: it judges the canary if the serial is the
// canary's, and plans moves if any are due. v.Table may be nil.
func Learn(v View, serial uint64, reports []LoadReport) Proposal {
	p := newProposer(v)
	switch {
	case p.canary.asked && p.canary.serial == serial:
		p.judge(reports)
	case p.loads.asked && p.loads.serial == serial:
		p.weigh(reports)
	}
	return p.proposal()
}

// weigh handles reports that were read for loads.
func (p *proposer) weigh(reports []LoadReport) {
	b, t := &p.loads, p.Table
	b.asked, b.next = false, p.Now+p.LoadPeriod
	if b.moves != nil {
		b.moves, p.planning.key = nil, "" // drop the plan with these moves
	}
	if t == nil || !p.firstPlanner() {
		return
	}
	b.follow(p.Now, t, p.Version)
	agreed := p.agreed(reports)
	complete := b.take(p.Now, p.LoadPeriod, t, reports)
	if !complete || !agreed || !p.calm() {
		b.isEven()
		return
	}
	p.noticeHot()
	p.planMoves()
}

// noticeHot reports slots that keep more workers busy than a member's fair share of all loads. Moving slots cannot even
// that out.
func (p *proposer) noticeHot() {
	b, t := &p.loads, p.Table
	b.hot = maps.Clone(b.hot)
	all, weights := 0.0, 0
	for _, l := range b.slots {
		all += l.load
	}
	for _, other := range t.Members {
		weights += other.Weight
	}
	for i := range b.slots {
		s, load := slot.Slot(i), b.slots[i].load
		owner, _ := t.Member(b.slots[i].owner)
		fair := all * float64(owner.Weight) / float64(weights)
		switch {
		case load < 0.8*fair || load < hotLoad/2:
			delete(b.hot, s)
		case len(t.Members) > 1 && load > fair && load >= hotLoad && !b.hot[s]:
			b.hot[s] = true
			p.notice("HotSlot", false, "slot %v keeps %.1f workers of member %s busy, of %.1f in all. That is more than a fair "+
				"share, and one slot cannot be divided: `rota status -o wide` names the objects that cause it",
				s, load/1000, owner.ID, all/1000)
		}
	}
}

// planMoves plans moves that even out loads, if loads have been uneven for a while.
func (p *proposer) planMoves() {
	b, t := &p.loads, p.Table
	fit, hold := p.fit(nil)
	if hold {
		b.isEven()
		return
	}
	owners, evened := p.evenOut(fit, max(1, int(t.Slots)/movesPerRead), !b.evening)
	if evened.Empty() || !p.significant(owners, evened) {
		b.isEven()
		return
	}
	b.even = 0
	if b.uneven++; b.uneven < unevenReads && !b.evening {
		return
	}
	b.evening = true
	b.moves, b.version = movesTo(owners, evened), p.Version
	p.planning.planAgain, p.planning.key = 0, ""
}

// isEven counts a read that found nothing to do, or that did not count.
func (b *loads) isEven() {
	b.uneven = 0
	if b.even++; b.even >= evenReads {
		b.evening = false
	}
}

// evenOut returns the owners after at most so many moves that even out loads, and the slots that move for that.
func (p *proposer) evenOut(
	fit map[string]bool, moves int, begin bool,
) (owners []string, evened slot.Set) {
	t := p.Table
	in := p.byLoad(p.assignment(t, nil, func(other table.Member) bool { return fit[other.ID] }, false, false))
	in.Owners, in.Moves, in.Begin = in.Owners[:t.Slots], moves, begin
	for s := range p.loads.slots {
		if p.loads.slots[s].rests > p.Now {
			in.Resting.Add(slot.Slot(s))
		}
	}
	return p.assignPlaces(t, in, false, plan.AssignByLoad)
}

// movesTo returns the owners of a set of slots.
func movesTo(owners []string, set slot.Set) map[slot.Slot]string {
	out := map[slot.Slot]string{}
	for _, s := range set.Slots() {
		out[s] = owners[s]
	}
	return out
}

// plansByLoad reports whether the members plan by load. It returns an error if some report so and others do not.
// Members without a report are ignored.
func plansByLoad(t *table.Table, reports []LoadReport) (yes bool, err error) {
	by := map[string]bool{}
	for _, r := range reports {
		by[r.ID] = r.ByLoad
	}
	with, without := "", ""
	for _, other := range t.Members {
		switch {
		case other.Leaving:
		case by[other.ID]:
			with = other.ID
		default:
			without = other.ID
		}
	}
	if with != "" && without != "" {
		return false, fmt.Errorf("member %s plans by load, and member %s does not, or has not reported yet: set ByLoad for "+
			"all members, or for none, and try again", with, without)
	}
	return with != "", nil
}

// believe uses the reported loads as they are. Loads are unknown for slots that move and for slots that their owner
// does not report.
func (b *loads) believe(t *table.Table, reports []LoadReport) {
	b.slots = make([]slotLoad, t.Slots)
	for _, r := range reports {
		loads := r.perSlot(int(t.Slots))
		eachHashSlot(t, func(s slot.Slot, run table.Run) {
			if n, ok := loads[s]; ok && run.Owner == r.ID && run.Next == "" && !run.Unsettled {
				b.slots[s] = slotLoad{load: float64(n), weight: 1}
			}
		})
	}
}

// significant reports whether loads differ by more than the noise in their reports. It compares the two members with
// the largest difference among those that slots would move between.
func (p *proposer) significant(owners []string, evened slot.Set) bool {
	t := p.Table
	type known struct{ load, variance float64 }
	by := map[string]known{}
	confidence := 0.0
	eachHashSlot(t, func(s slot.Slot, r table.Run) {
		l, of := p.loads.slots[s], by[r.Owner]
		owner, _ := t.Member(r.Owner)
		weight := float64(max(owner.Weight, 1))
		by[r.Owner] = known{of.load + l.load/weight, of.variance + l.variance/weight/weight}
		confidence = max(confidence, l.weight)
	})
	reads := max(1, confidence*independentReads)
	for _, s := range evened.Slots() {
		from, to := by[t.At(s).Owner], by[owners[s]]
		if off := from.load - to.load; off > deviations*math.Sqrt((from.variance+to.variance)/reads) {
			return true
		}
	}
	return false
}

// agreed reports whether all members plan by load. A planner by number would undo what this one plans.
func (p *proposer) agreed(reports []LoadReport) bool {
	b, t := &p.loads, p.Table
	if len(reports) == 0 {
		return !b.differs // the reports could not be read
	}
	i := slices.IndexFunc(reports, func(r LoadReport) bool {
		other, ok := t.Member(r.ID)
		return ok && !other.Leaving && !r.ByLoad
	})
	if differs := i >= 0; differs != b.differs {
		b.differs, p.planning.key = differs, ""
		if differs {
			p.notice("LoadsNotEven", true, "member %s is configured to plan by the number of slots, and others by "+
				"load: loads are not evened out until all are configured alike", reports[i].ID)
		}
	}
	return !b.differs
}

// take handles reports, and returns whether all members have reported since the last read. It ignores slots that the
// member does not own, has owned only for a short time, or is about to hand over.
func (b *loads) take(now, period time.Duration, t *table.Table, reports []LoadReport) (complete bool) {
	reported := map[string]map[slot.Slot]int64{}
	b.reports, b.slots = maps.Clone(b.reports), slices.Clone(b.slots)
	for _, r := range reports {
		last, known := b.reports[r.ID]
		b.reports[r.ID] = r.Serial
		if loads := r.perSlot(int(t.Slots)); known && r.Serial > last && loads != nil {
			reported[r.ID] = loads
		}
	}
	eachHashSlot(t, func(s slot.Slot, r table.Run) {
		l := &b.slots[s]
		n, counts := reported[r.Owner][s]
		if counts && r.Next == "" && now-l.since >= loadYouth {
			l.pass(now, period, float64(n))
		}
	})
	for _, other := range t.Members {
		if !other.Leaving && reported[other.ID] == nil {
			return false
		}
	}
	return true
}

// calm reports whether nothing moves and no member comes or goes, so that loads are stable.
func (p *proposer) calm() bool {
	t := p.Table
	for _, other := range t.Members {
		if other.Leaving || p.Dead(other.ID) {
			return false
		}
	}
	for _, r := range t.Runs {
		if !t.IsDuty(r.Slots.First) && (r.Owner == "" || r.Next != "" || r.Unsettled) {
			return false
		}
	}
	return !p.rollout()
}

// byLoad adds the known loads to the input of a plan, if enough is known.
func (p *proposer) byLoad(in plan.Input) plan.LoadInput {
	out := plan.LoadInput{Input: in}
	known, sum := 0, 0.0
	for _, l := range p.loads.slots {
		if l.weight > 0 {
			known++
			sum += l.load
		}
	}
	if known == 0 || known < len(p.loads.slots)/2 {
		return out
	}
	for _, l := range p.loads.slots {
		load := l.load
		if l.weight == 0 {
			load = sum / float64(known)
		}
		out.Load = append(out.Load, int64(math.Round(load)))
	}
	return out
}

// addMoves adds the moves that even out loads to a plan for their version of the table.
func (p *proposer) addMoves(in plan.Input, owners []string) {
	b := &p.loads
	if b.version != p.Version || in.Only != "" || in.Tolerant {
		return
	}
	receives := func(id string) bool {
		return slices.ContainsFunc(in.Members, func(other plan.Member) bool {
			return other.ID == id && other.Receives && !other.Leaves
		})
	}
	for s, to := range b.moves {
		if owners[s] == in.Owners[s] && !in.Moving.Has(s) && receives(to) {
			owners[s] = to
		}
	}
}
