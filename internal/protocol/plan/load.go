package plan

import (
	"cmp"
	"slices"

	"github.com/rota-dev/rota/slot"
)

// LoadInput is the input of AssignByLoad, which does not change it.
type LoadInput struct {
	Input
	// Load is the cost of each slot to its owner, in thousandths of a busy worker, from 0 to MaxLoad. Loads outside the
	// range are clamped. It is nil if loads are unknown. Slots then count as equal.
	Load []int64
	// Moves is how many slots may move between members that already have slots, in order to even out loads. Begin is set
	// if loads were even enough so far: the first move then needs a larger difference than later ones (hysteresis).
	Moves int
	Begin bool
	// Resting are slots that must not move to even out loads.
	Resting slot.Set
}

const (
	// MaxLoad is the largest load of a slot.
	MaxLoad = 1_000_000
	// evenAt and unevenAt are the hysteresis, in percent of the mean: loads are evened out once a member has 120 % of the
	// mean, until none has more than 105 %.
	evenAt, unevenAt, hundred = 105, 120, 100
	// least is how far above the mean a member's load must be before anything is evened out, in thousandths of a worker.
	// gain is by how much a move must reduce the larger of two loads. Smaller differences are not worth a list and a
	// drain.
	least, gain = 100, 10
	// mostSlots limits a member's slots to twice its fair share by number, whatever their load, since its memory grows
	// with their objects.
	mostSlots = 2
	// grain is how much more the loads of all slots weigh than their number. The number counts a little, so that slots
	// without load are also spread.
	grain = 16
)

// AssignByLoad is Assign for slots with different loads (rule R21). It makes few changes to Input.Owners that lead to
// this:
//
//   - Every slot has an owner that does not leave, as with Assign.
//   - A member that receives and had no slots has about its fair share of the loads. Members above theirs give up slots
//     for it, but not while Tolerant.
//   - Slots that had to move are with members furthest below their fair shares. While Tolerant, they go to preferred
//     members first, up to 1.25 times their share.
//   - At most Moves other slots have moved, each from the member with the largest load for its weight to the one with
//     the smallest, if the larger of the two loads becomes smaller. So a slot with more load than a fair share ends up
//     alone.
//
// No member gets more than twice its fair share by number. If loads are unknown, slots that must move are spread
// evenly, whatever the members own: a member with few slots may have heavy ones.
//
// evened are the slots that the last step moved. The result is a function of the input, and the order of Members does
// not matter. The last step is greedy, as in Graham's rule for makespans (1969), from the current owners.
func AssignByLoad(in LoadInput) (owners []string, evened slot.Set) {
	l := newLoads(in)
	if !slices.ContainsFunc(l.members, func(m Member) bool { return m.Receives }) {
		return l.owners(in.Owners), evened
	}
	l.measure()
	l.admit()
	l.spread()
	if in.Load != nil && !in.Tolerant {
		evened = l.even()
	}
	return l.owners(in.Owners), evened
}

// loads is the work in progress.
type loads struct {
	*assignment
	in   LoadInput
	cost []int64     // per slot, above 0
	each int64       // the part of a cost that is for the number of slots
	sum  []int64     // per member: cost of its slots
	n    []int       // per member: number of slots
	most []int       // per member: the largest number of slots
	fair []int64     // per member: its share of the costs
	take []int64     // per member: how much of the free slots' costs it should get
	was  map[int]int // by slot: the member that gave it up for members without slots
}

func newLoads(in LoadInput) *loads {
	a := newAssignment(in.Input)
	l := &loads{
		assignment: a, in: in, cost: make([]int64, len(a.own)), sum: make([]int64, len(a.members)),
		n: slices.Clone(a.have), most: make([]int, len(a.members)), fair: make([]int64, len(a.members)),
		take: make([]int64, len(a.members)), was: map[int]int{},
	}
	all := int64(0)
	for s := range l.cost {
		if s < len(in.Load) {
			l.cost[s] = min(max(in.Load[s], 0), MaxLoad)
		}
		all += l.cost[s]
	}
	l.each = max(all/int64(max(len(l.cost), 1)), 1)
	for s, o := range l.own {
		l.cost[s] = grain*l.cost[s] + l.each
		if o >= 0 {
			l.sum[o] += l.cost[s]
		}
	}
	return l
}

// takesPart reports whether a member shares the load: it may get slots, or keeps its slots.
func (l *loads) takesPart(m int) bool { return l.members[m].Receives || l.have[m] > 0 }

// measure computes fair shares. A slot that costs more than a fair share is its owner's whole share, and the other
// members share the rest.
func (l *loads) measure() {
	var costs []int
	all, weights, slotsOf := int64(0), int64(0), 0
	for s, o := range l.own {
		if o != foreign {
			costs = append(costs, s)
			all += l.cost[s]
			slotsOf++
		}
	}
	for m := range l.members {
		if l.takesPart(m) {
			weights += int64(l.members[m].Weight)
		}
	}
	receivers := int64(0)
	for m := range l.members {
		if l.members[m].Receives {
			receivers += int64(l.members[m].Weight)
		} else {
			slotsOf -= l.have[m]
		}
	}
	for m := range l.members {
		w := int64(l.members[m].Weight)
		l.most[m] = max(l.have[m], int(mostSlots*w*int64(slotsOf)/max(receivers, 1)), 1)
	}
	slices.SortFunc(costs, func(x, y int) int { return cmp.Or(cmp.Compare(l.cost[y], l.cost[x]), cmp.Compare(x, y)) })
	alone := make([]bool, len(l.members))
	for _, s := range costs {
		o, w := l.own[s], int64(1)
		if o >= 0 {
			w = int64(l.members[o].Weight)
		}
		if weights <= w || l.cost[s]*weights <= all*w || o >= 0 && alone[o] {
			break
		}
		all -= l.cost[s]
		weights -= w
		if o >= 0 {
			alone[o] = true
			l.fair[o] = l.cost[s]
		}
	}
	for again := true; again; { // a member that does not receive counts with its own load, if that is less than its share
		again = false
		for m := range l.members {
			w := int64(l.members[m].Weight)
			if l.members[m].Receives || !l.takesPart(m) || alone[m] || weights <= w || l.sum[m]*weights >= all*w {
				continue
			}
			alone[m], l.fair[m], again = true, l.sum[m], true
			all -= l.sum[m]
			weights -= w
		}
	}
	for m := range l.members {
		if l.takesPart(m) && !alone[m] {
			l.fair[m] = all * int64(l.members[m].Weight) / max(weights, 1)
		}
	}
}

// joins reports whether a member gets its first slots.
func (l *loads) joins(m int) bool { return l.members[m].Receives && l.have[m] == 0 }

// admit frees slots for members without slots, and sets how much those take.
func (l *loads) admit() {
	need, excess := int64(0), int64(0)
	var donors []int
	for m := range l.members {
		switch {
		case l.joins(m):
			l.take[m] = l.fair[m]
			need += l.fair[m]
		case l.sum[m] > l.fair[m]:
			donors = append(donors, m)
			excess += l.sum[m] - l.fair[m]
		}
	}
	if l.in.Tolerant {
		return
	}
	if need = min(need-l.freed(), excess); need > 0 {
		slices.SortStableFunc(donors, func(x, y int) int {
			return cmp.Compare(l.sum[y]-l.fair[y], l.sum[x]-l.fair[x])
		})
		due, given := int64(0), int64(0) // running sums, so that small parts of many donors add up
		for _, m := range donors {
			due += part(need, l.sum[m]-l.fair[m], excess)
			given += l.release(m, due-given)
		}
	}
	l.atLeastOne()
}

// atLeastOne frees a slot for each member without slots, from members that have two or more.
func (l *loads) atLeastOne() {
	there := 0
	for _, o := range l.own {
		if o == free {
			there++
		}
	}
	for m := range l.members {
		if !l.joins(m) {
			continue
		}
		if there--; there >= 0 {
			continue
		}
		if s := l.spare(l.fair[m]); s >= 0 {
			l.free(s)
		}
	}
}

// spare returns the slot whose cost is nearest to much, from the member with the most slots, or -1 if no member can
// spare one.
func (l *loads) spare(much int64) int {
	best := -1
	for s, o := range l.own {
		if o < 0 || l.fixed[s] || l.n[o] < 2 {
			continue
		}
		if best < 0 || l.n[o] > l.n[l.own[best]] ||
			l.n[o] == l.n[l.own[best]] && distance(l.cost[s], much) < distance(l.cost[best], much) {
			best = s
		}
	}
	return best
}

func distance(x, y int64) int64 { return max(x-y, y-x) }

// free takes a slot from its owner, for members without slots.
func (l *loads) free(s int) {
	l.was[s] = l.own[s]
	l.move(s, free)
}

// move gives a slot to another owner. Both the new and the old owner may be free.
func (l *loads) move(s, to int) {
	if from := l.own[s]; from >= 0 {
		l.sum[from] -= l.cost[s]
		l.n[from]--
	}
	if l.own[s] = to; to >= 0 {
		l.sum[to] += l.cost[s]
		l.n[to]++
	}
}

// freed returns the cost of the free slots.
func (l *loads) freed() (cost int64) {
	for s, o := range l.own {
		if o == free {
			cost += l.cost[s]
		}
	}
	return cost
}

// release frees slots of a member with a total cost of about much, from the ends of its runs.
func (l *loads) release(m int, much int64) (given int64) {
	runs := slices.DeleteFunc(l.slotRuns(nil), func(r run) bool { return r.owner != m || r.fixed })
	// Whole small runs first, which leaves the member fewer. Of equal ones the last.
	slices.SortFunc(runs, func(x, y run) int {
		return cmp.Or(cmp.Compare(x.len(), y.len()), cmp.Compare(y.first, x.first))
	})
	for _, r := range runs {
		for s := r.last; s >= r.first && 2*(much-given) >= l.cost[s] && l.n[m] > 1; s-- {
			l.free(s)
			given += l.cost[s]
		}
	}
	return given
}

// spread gives all free slots to members that receive.
func (l *loads) spread() {
	l.quotas()
	var gaps []run
	for _, r := range l.slotRuns(nil) {
		if r.owner == free {
			gaps = append(gaps, r)
		}
	}
	moved := make([]bool, len(l.own))
	for s, o := range l.own {
		moved[s] = o == free
	}
	for i := range gaps {
		l.extend(&gaps[i])
	}
	for _, gap := range gaps {
		for s := gap.first; s <= gap.last; s++ {
			l.give(s, l.taker(s))
		}
	}
	for m := range l.members {
		if l.joins(m) && l.n[m] == 0 {
			l.first(m, moved)
		}
	}
}

// first gives a member without slots its first slot: one of those that had to move, from a member with two or more.
func (l *loads) first(m int, moved []bool) {
	best := -1
	for s, o := range l.own {
		if o < 0 || !moved[s] || l.n[o] < 2 {
			continue
		}
		if best < 0 || distance(l.cost[s], l.fair[m]) < distance(l.cost[best], l.fair[m]) {
			best = s
		}
	}
	if best >= 0 {
		l.move(best, m)
	}
}

// quotas sets how much members take of the free slots.
func (l *loads) quotas() {
	left := l.freed()
	if l.in.Tolerant {
		clear(l.take)
		left = l.share(left, func(m int) int64 {
			if !l.members[m].Prefer {
				return 0
			}
			return max(l.fair[m]+l.fair[m]/4-l.sum[m], 0)
		}, false)
	} else {
		for _, n := range l.take {
			left -= n
		}
	}
	if l.in.Load != nil {
		left = l.share(left, func(m int) int64 { return max(l.fair[m]-l.sum[m]-l.take[m], 0) }, false)
	}
	l.share(left, func(m int) int64 { return int64(l.members[m].Weight) }, true)
}

// share distributes much among the members that receive, by what each asks for, and returns the rest. Only with more do
// members take more than they ask for.
func (l *loads) share(much int64, asks func(m int) int64, more bool) (left int64) {
	all := int64(0)
	for m := range l.members {
		if l.members[m].Receives {
			all += asks(m)
		}
	}
	if much <= 0 || all == 0 {
		return much
	}
	given := much
	if !more {
		given = min(given, all)
	}
	for m := range l.members {
		if l.members[m].Receives {
			l.take[m] += part(given, asks(m), all)
		}
	}
	return much - given
}

// part is all × some / of, computed in floating point since the product may overflow an int64.
func part(all, some, of int64) int64 { return int64(float64(all) * (float64(some) / float64(of))) }

// may reports whether a member may get a free slot. A slot that was given up goes to a member without slots, or back.
func (l *loads) may(m, s int) bool {
	was, gave := l.was[s]
	return l.members[m].Receives && (!gave || l.joins(m)) || gave && m == was
}

// wants reports whether a member should get another slot.
func (l *loads) wants(m, s int) bool {
	return m >= 0 && l.may(m, s) && l.n[m] < l.most[m] && 2*l.take[m] >= l.cost[s]
}

// give gives a free slot to a member.
func (l *loads) give(s, m int) {
	l.move(s, m)
	l.take[m] -= l.cost[s]
}

// extend gives slots at the ends of a gap to the adjacent owners.
func (l *loads) extend(gap *run) {
	if gap.first > 0 {
		for o := l.own[gap.first-1]; gap.first <= gap.last && l.wants(o, gap.first); gap.first++ {
			l.give(gap.first, o)
		}
	}
	if gap.last+1 < len(l.own) {
		for o := l.own[gap.last+1]; gap.first <= gap.last && l.wants(o, gap.last); gap.last-- {
			l.give(gap.last, o)
		}
	}
}

// taker chooses a member for a slot: the adjacent one if that should get more, else one without slots, else the one
// that should get most. If none should get more, it chooses the one with the least load.
func (l *loads) taker(s int) int {
	if s > 0 && l.wants(l.own[s-1], s) {
		return l.own[s-1]
	}
	best := -1
	better := func(m int) bool {
		if x, y := l.n[m] == 0, l.n[best] == 0; x != y {
			return x
		}
		x, y := l.n[m] < l.most[m], l.n[best] < l.most[best]
		if x != y {
			return x
		}
		if l.take[m] > 0 || l.take[best] > 0 {
			return l.take[m] > l.take[best]
		}
		return l.lighter(m, best) < 0
	}
	for m := range l.members {
		if l.may(m, s) && (best < 0 || better(m)) {
			best = m
		}
	}
	return best
}

// lighter compares the loads of two members for their weights.
func (l *loads) lighter(x, y int) int {
	return cmp.Compare(l.sum[x]*int64(l.members[y].Weight), l.sum[y]*int64(l.members[x].Weight))
}

// even moves slots between members that have some, one at a time.
func (l *loads) even() (evened slot.Set) {
	var rest []int // members that may still give slots
	all, weights := int64(0), int64(0)
	for m := range l.members {
		if l.takesPart(m) {
			rest = append(rest, m)
			all += l.sum[m]
			weights += int64(l.members[m].Weight)
		}
	}
	begin := l.in.Begin
	for moves := l.in.Moves; moves > 0 && len(rest) > 1; {
		slices.SortStableFunc(rest, func(x, y int) int { return l.lighter(y, x) })
		from, to := rest[0], l.lightest(rest[1:])
		w := int64(l.members[from].Weight)
		limit := int64(evenAt)
		if begin {
			limit = unevenAt
		}
		mean := all * w / weights
		if l.sum[from]*hundred <= mean*limit || l.sum[from]-mean < least*grain {
			return evened
		}
		s := l.best(from, to)
		if s < 0 {
			rest = rest[1:]
			all -= l.sum[from]
			weights -= w
			continue
		}
		l.move(s, to)
		evened.Add(slot.Slot(s))
		moves--
		begin = false
	}
	return evened
}

// lightest returns the member with the least load that may get another slot, or -1. among is sorted by falling load.
func (l *loads) lightest(among []int) int {
	for _, m := range slices.Backward(among) {
		if l.members[m].Receives && l.n[m] < l.most[m] {
			return m
		}
	}
	return -1
}

// best returns the slot whose move makes the larger of two members' loads smallest, or -1 if no move makes it small
// enough. Of nearly equal moves it prefers the one that leaves the fewest runs.
func (l *loads) best(from, to int) int {
	if to < 0 {
		return -1
	}
	wf, wt := float64(l.members[from].Weight), float64(l.members[to].Weight)
	now := float64(l.sum[from]) / wf
	best, bestAt := -1, 0.0
	for s, o := range l.own {
		cold := l.cost[s] < 2*l.each // less than 1/16 of the mean
		if o != from || l.n[from] < 2 || l.fixed[s] || cold || l.in.Resting.Has(slot.Slot(s)) {
			continue
		}
		c := float64(l.cost[s])
		after := max((float64(l.sum[from])-c)/wf, (float64(l.sum[to])+c)/wt)
		if now-after < max(gain*grain/wf, now/64) {
			continue
		}
		if after += now / 64 * float64(l.boundaries(s, from, to)); best < 0 || after < bestAt {
			best, bestAt = s, after
		}
	}
	return best
}

// boundaries returns how many boundaries between owners a move of the slot adds.
func (l *loads) boundaries(s, from, to int) (more int) {
	for _, beside := range [2]int{s - 1, s + 1} {
		if beside < 0 || beside >= len(l.own) {
			continue
		}
		switch l.own[beside] {
		case from:
			more++
		case to:
			more--
		}
	}
	return more
}
