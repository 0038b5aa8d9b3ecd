package plan

// placement hands out the free slots.
type placement struct {
	*assignment
	take *budget
	runs []int // per member: number of runs
	gaps []run // maximal runs of free slots
}

// place gives every free slot to a member that has to take some.
//
// It fills gaps between slots of takers from their ends, which makes no new run. Gaps that can be filled completely
// come first. It packs the rest into few pieces by a greedy fit: exact fits first, then the largest taker into the
// largest gap.
func (a *assignment) place(take *budget) {
	p := &placement{assignment: a, take: take, runs: make([]int, len(a.members))}
	for _, r := range a.slotRuns(nil) {
		switch {
		case r.owner == free:
			p.gaps = append(p.gaps, r)
		case r.owner >= 0:
			p.runs[r.owner]++
		}
	}
	for _, fill := range []func(*run){p.fillBetween, p.fillWhole, p.fillBoth, p.fillEnds} {
		for i := range p.gaps {
			if p.gaps[i].len() > 0 {
				fill(&p.gaps[i])
			}
		}
	}
	p.pack()
}

// neighbors returns the owners beside the gap and how many slots they can take, or -1 and 0.
func (p *placement) neighbors(gap *run) (left, right, leftTakes, rightTakes int) {
	left, right = free, free
	if gap.first > 0 && p.own[gap.first-1] >= 0 {
		left = p.own[gap.first-1]
		leftTakes = p.take.left(left)
	}
	if gap.last+1 < len(p.own) && p.own[gap.last+1] >= 0 {
		right = p.own[gap.last+1]
		rightTakes = p.take.left(right)
	}
	return left, right, leftTakes, rightTakes
}

// give gives n slots at the left or right end of the gap to m.
func (p *placement) give(gap *run, m, n int, atRight bool) {
	p.take.spend(m, n)
	first := gap.first
	if atRight {
		first = gap.last + 1 - n
		gap.last -= n
	} else {
		gap.first += n
	}
	for s := first; s < first+n; s++ {
		p.own[s] = m
	}
}

// fillBetween fills a gap between two runs of the same taker.
func (p *placement) fillBetween(gap *run) {
	if left, right, takes, _ := p.neighbors(gap); left == right && takes >= gap.len() {
		p.give(gap, left, gap.len(), false)
	}
}

// fillWhole fills a gap that one neighbor can take completely. If both can, the tighter fit takes it.
func (p *placement) fillWhole(gap *run) {
	left, right, leftTakes, rightTakes := p.neighbors(gap)
	n := gap.len()
	switch {
	case leftTakes >= n && (rightTakes < n || leftTakes <= rightTakes):
		p.give(gap, left, n, false)
	case rightTakes >= n:
		p.give(gap, right, n, true)
	}
}

// fillBoth fills a gap that both neighbors together can take completely.
func (p *placement) fillBoth(gap *run) {
	left, right, leftTakes, rightTakes := p.neighbors(gap)
	if left != right && leftTakes+rightTakes >= gap.len() {
		p.fillEnds(gap)
	}
}

// fillEnds lets both neighbors take what they can.
func (p *placement) fillEnds(gap *run) {
	if left, _, takes, _ := p.neighbors(gap); takes > 0 {
		p.give(gap, left, min(takes, gap.len()), false)
	}
	if gap.len() == 0 {
		return
	}
	if _, right, _, takes := p.neighbors(gap); takes > 0 {
		p.give(gap, right, min(takes, gap.len()), true)
	}
}

// pack hands out the slots that the neighbors did not take.
func (p *placement) pack() {
	for {
		gap := p.largest()
		if gap == nil {
			return
		}
		m := p.taker(gap.len())
		if m < 0 {
			return
		}
		p.runs[m]++
		p.give(gap, m, min(p.take.left(m), gap.len()), false)
	}
}

func (p *placement) largest() *run {
	best := -1
	for i := range p.gaps {
		if n := p.gaps[i].len(); n > 0 && (best < 0 || n > p.gaps[best].len()) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	return &p.gaps[best]
}

// taker chooses a member for a gap of n slots: one that the gap fits exactly, or else the one that takes most. Of
// several it chooses the one with the fewest runs.
func (p *placement) taker(n int) int {
	best, bestTakes := -1, 0
	for m := range p.members {
		takes := p.take.left(m)
		if takes == 0 {
			continue
		}
		if takes == n {
			takes = len(p.own) + 1
		}
		if takes > bestTakes || (takes == bestTakes && p.runs[m] < p.runs[best]) {
			best, bestTakes = m, takes
		}
	}
	return best
}
