package plan

import "math"

// run is a run of slots with the same owner, all of them fixed or none.
type run struct {
	first, last int
	owner       int
	fixed       bool
}

func (r run) len() int { return r.last - r.first + 1 }

func (a *assignment) slotRuns(into []run) []run {
	into = into[:0]
	for s, o := range a.own {
		if n := len(into); n > 0 && into[n-1].owner == o && into[n-1].fixed == a.fixed[s] {
			into[n-1].last = s
			continue
		}
		into = append(into, run{s, s, o, a.fixed[s]})
	}
	return into
}

// cluster is a range of slots that donors give up together, including free slots between them.
type cluster struct {
	first, last int
	slots       int // of donors; the zero cluster has none
	chances     int // of the donor with the fewest; see grower
	delta       int // change of the number of boundaries between owners
}

// before reports whether to take the cluster before another one. The cluster that gives more slots comes first, where
// each boundary that it removes counts as a slot. Then comes the one whose donors have fewer other chances, as Karp and
// Sipser's heuristic for matchings starts with the vertices of lowest degree. Comparing boundaries first, or boundaries
// per slot, left 10 to 50 % more runs after long histories.
func (c cluster) before(other cluster) bool {
	switch x, y := c.slots-c.delta, other.slots-other.delta; {
	case c.slots == 0 || other.slots == 0:
		return c.slots > 0
	case x != y:
		return x > y
	case c.chances != other.chances:
		return c.chances < other.chances
	default:
		return c.delta < other.delta
	}
}

// release frees the slots that donors give up.
//
// A taker's new slots make few runs if they are adjacent, and a donor loses a run if it gives a whole one. So release
// looks at every boundary between two runs and grows a cluster from there to both sides, as far as the donors' budgets
// reach. It takes the best cluster and starts again.
func (a *assignment) release(give, take *budget) {
	var runs []run
	grower := grower{give: give, take: take, used: make([]int, len(a.members)), chances: make([]int, len(a.members))}
	for {
		runs = a.slotRuns(runs)
		grower.count(runs)
		var best cluster
		for at := 0; at <= len(runs); at++ {
			if c := grower.grow(runs, at); c.before(best) {
				best = c
			}
		}
		if best.slots == 0 {
			return
		}
		for s := best.first; s <= best.last; s++ {
			if o := a.own[s]; o != free {
				give.spend(o, 1)
				a.own[s] = free
			}
		}
	}
}

// grower grows clusters.
type grower struct {
	give, take *budget
	used       []int // per member: slots taken by the cluster that is growing
	tokens     int   // how many tokens it uses
	touched    []int
	chances    []int // per member: number of boundaries with other donors
}

func (g *grower) count(runs []run) {
	clear(g.chances)
	for i := 1; i < len(runs); i++ {
		if l, r := runs[i-1], runs[i]; l.owner != r.owner && g.gives(l) && g.gives(r) {
			g.chances[l.owner]++
			g.chances[r.owner]++
		}
	}
}

func (g *grower) left(m int) int {
	n := g.give.must[m] - g.used[m]
	if g.give.may[m] && g.tokens < g.give.tokens {
		n++
	}
	return max(n, 0)
}

func (g *grower) use(m, n int) {
	if g.used[m] == 0 {
		g.touched = append(g.touched, m)
	}
	g.used[m] += n
	if g.used[m] > g.give.must[m] {
		g.tokens++
	}
}

// grow returns the cluster around the boundary before runs[at].
func (g *grower) grow(runs []run, at int) cluster {
	if (at == 0 || !g.gives(runs[at-1])) && (at == len(runs) || !g.gives(runs[at])) {
		return cluster{}
	}
	var c cluster
	right, left := at, at-1
	cutRight, cutLeft := 0, 0 // slots taken from the runs at the cluster's ends
	for ; right < len(runs); right++ {
		n, whole := g.takeOf(runs[right])
		if c.slots += n; !whole {
			cutRight = n
			break
		}
	}
	for ; left >= 0; left-- {
		n, whole := g.takeOf(runs[left])
		if c.slots += n; !whole {
			cutLeft = n
			break
		}
	}
	c.chances = math.MaxInt
	for _, m := range g.touched {
		c.chances = min(c.chances, g.chances[m])
		g.used[m] = 0
	}
	g.touched, g.tokens = g.touched[:0], 0
	if c.slots == 0 {
		return cluster{}
	}
	// Boundaries from runs[left] to runs[right], both included, vanish; the two ends of the cluster appear.
	for i := max(left, 0); i < right && i+1 < len(runs); i++ {
		if runs[i].owner != runs[i+1].owner {
			c.delta--
		}
	}
	c.first, c.last = 0, runs[len(runs)-1].last
	if left >= 0 {
		c.first = runs[left].last + 1 - cutLeft
		c.delta += g.end(runs[left])
	}
	if right < len(runs) {
		c.last = runs[right].first - 1 + cutRight
		c.delta += g.end(runs[right])
	}
	return c
}

func (g *grower) gives(r run) bool {
	return r.owner >= 0 && !r.fixed && g.left(r.owner) > 0
}

// takeOf takes as many slots of r as its owner's budget allows.
func (g *grower) takeOf(r run) (slots int, whole bool) {
	if r.owner == free {
		return 0, true
	}
	if !g.gives(r) {
		return 0, false
	}
	slots = min(g.left(r.owner), r.len())
	g.use(r.owner, slots)
	return slots, slots == r.len()
}

// end returns 0 if the cluster ends at slots of a member that may take it, otherwise 1.
func (g *grower) end(r run) int {
	if r.owner >= 0 && g.take.left(r.owner) > 0 {
		return 0
	}
	return 1
}
