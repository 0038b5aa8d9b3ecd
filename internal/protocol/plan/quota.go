package plan

import "slices"

// share is one member's share of the slots. level sets its ideal size, num/den slots.
type share struct {
	weight   int
	lo, hi   int // bounds of the ideal size
	num, den int
}

func (s share) floor() int   { return s.num / s.den }
func (s share) rest() int    { return s.num % s.den }
func (s share) ceiling() int { return (s.num + s.den - 1) / s.den }

// level sets the ideal sizes so that they add up to total: weight times a common level, within the bounds. The sum of
// the lower bounds must not exceed total, and total must not exceed the sum of the upper bounds.
//
// It finds the level as the CSS Flexible Box Layout (section 9.7) resolves flexible lengths: each pass freezes shares
// at their bounds, on the side with the larger violation. It takes at most len(shares) passes, commonly two or three.
func level(shares []share, total int) {
	weights := 0
	for i := range shares {
		shares[i].den = 0
		weights += shares[i].weight
	}
	for weights > 0 {
		violation := 0
		for _, s := range shares {
			if s.den == 0 {
				ideal := s.weight * total
				violation += min(max(ideal, s.lo*weights), s.hi*weights) - ideal
			}
		}
		left, leftWeights := total, weights
		for i := range shares {
			s := &shares[i]
			if s.den != 0 {
				continue
			}
			ideal := s.weight * total
			switch {
			case ideal < s.lo*weights && violation >= 0:
				s.num, s.den = s.lo, 1
			case ideal > s.hi*weights && violation <= 0:
				s.num, s.den = s.hi, 1
			default:
				continue
			}
			left -= s.num
			leftWeights -= s.weight
		}
		if leftWeights == weights {
			for i := range shares {
				if s := &shares[i]; s.den == 0 {
					s.num, s.den = s.weight*total, weights
				}
			}
			return
		}
		total, weights = left, leftWeights
	}
}

// budget is how many slots each member has to give or to take. If the fair shares leave a choice, some members may give
// or take one more. Of these, as many as there are tokens must.
type budget struct {
	must   []int
	may    []bool
	tokens int
}

func newBudget(members int) *budget {
	return &budget{must: make([]int, members), may: make([]bool, members)}
}

// left returns how many slots member m has left.
func (b *budget) left(m int) int {
	if b.may[m] && b.tokens > 0 {
		return b.must[m] + 1
	}
	return b.must[m]
}

// spend takes n slots, at most left(m), off the budget. Optional slots are spent last.
func (b *budget) spend(m, n int) {
	b.must[m] -= n
	if b.must[m] < 0 {
		b.must[m], b.may[m] = 0, false
		b.tokens--
	}
}

// quotas returns how many slots each member has to give up and to take. At least one member must receive.
func (a *assignment) quotas(tolerant bool) (give, take *budget) {
	total := 0
	for _, o := range a.own {
		if o != foreign {
			total++
		}
	}
	shares := make([]share, len(a.members))
	for i, m := range a.members {
		shares[i] = share{weight: m.Weight, lo: a.pinned[i], hi: total}
		if !m.Receives {
			shares[i].hi = a.have[i]
		}
	}
	if tolerant {
		a.tolerate(shares, total)
	}
	level(shares, total)
	return a.round(shares, total)
}

// tolerate narrows the bounds of the shares to what rule R9 requires in a rollout.
func (a *assignment) tolerate(shares []share, total int) {
	fair := slices.Clone(shares)
	for i := range fair {
		fair[i].lo = 0
		if a.members[i].Receives {
			fair[i].hi = len(a.own)
		}
	}
	level(fair, len(a.own))
	caps := make([]int, len(shares))
	room := 0 // up to this total only preferred members rise above their lower bounds
	for i := range shares {
		s, m := &shares[i], a.members[i]
		caps[i] = max(fair[i].ceiling(), fair[i].num*5/(fair[i].den*4))
		s.lo = max(s.lo, min(a.have[i], caps[i]))
		room += s.lo
		if m.Receives && m.Prefer {
			room += max(caps[i]-s.lo, 0)
		}
	}
	for i := range shares {
		s, m := &shares[i], a.members[i]
		switch preferred := m.Receives && m.Prefer; {
		case preferred && room < total: // the preferred are filled, and the others share the rest
			s.lo = max(s.lo, caps[i])
			s.hi = s.lo
		case preferred:
			s.hi = max(s.lo, caps[i])
		case room >= total:
			s.hi = s.lo
		}
	}
}

// round rounds the shares to whole slots by largest remainder. Members that already have the larger number come first,
// since each of them saves a move. Equal remainders are left open as tokens.
func (a *assignment) round(shares []share, total int) (give, take *budget) {
	give, take = newBudget(len(shares)), newBudget(len(shares))
	holders, others := []int{}, []int{}
	for i, s := range shares {
		total -= s.floor()
		switch keeps := a.have[i] > s.floor(); {
		case keeps && s.rest() > 0:
			give.must[i] = a.have[i] - s.ceiling()
			holders = append(holders, i)
		case keeps:
			give.must[i] = a.have[i] - s.floor()
		default:
			take.must[i] = s.floor() - a.have[i]
			if s.rest() > 0 {
				others = append(others, i)
			}
		}
	}
	byRest := func(i, j int) int { return shares[j].rest() - shares[i].rest() } // all have the same denominator
	slices.SortStableFunc(holders, func(i, j int) int {
		// Members that do not receive come first: they never get back what they give up.
		if r := a.members[i].Receives; r != a.members[j].Receives {
			if r {
				return 1
			}
			return -1
		}
		return byRest(i, j)
	})
	slices.SortStableFunc(others, byRest)
	if total < len(holders) {
		first, last := a.tied(shares, holders, total)
		for _, i := range holders[last:] {
			give.must[i]++
		}
		for _, i := range holders[first:last] {
			give.may[i] = true
		}
		give.tokens = last - total
		return give, take
	}
	total -= len(holders)
	first, last := a.tied(shares, others, total)
	for _, i := range others[:first] {
		take.must[i]++
	}
	for _, i := range others[first:last] {
		take.may[i] = true
	}
	take.tokens = total - first
	return give, take
}

// tied returns the range of members in order that are equal to the n-th.
func (a *assignment) tied(shares []share, order []int, n int) (first, last int) {
	first, last = n, n
	if n == len(order) {
		return first, last
	}
	par := func(i int) bool {
		x, y := order[i], order[n]
		return shares[x].rest() == shares[y].rest() && a.members[x].Receives == a.members[y].Receives
	}
	for first > 0 && par(first-1) {
		first--
	}
	for last < len(order) && par(last) {
		last++
	}
	return first, last
}
