package plan

// run is a run of slots that are alike.
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

// cluster is a stretch of slots that donors give up together, with the free slots between them.
type cluster struct {
	first, last int
	slots       int // of donors
	delta       int // change of the number of boundaries between owners
}

// better prefers the larger cluster, then the one that leaves fewer boundaries. (Boundaries first, or boundaries per
// slot, was measured to leave 10 to 50 % more runs after long histories.)
func (c cluster) better(than cluster) bool {
	if c.slots != than.slots {
		return c.slots > than.slots
	}
	return c.delta < than.delta
}

// release frees the slots that donors give up.
//
// A taker's new slots make few runs where they lie side by side, and a donor loses a run where it gives a whole one. So
// it looks at every boundary between two runs, grows a cluster from there to both sides as far as the donors' budgets
// reach, takes the largest, and begins anew.
func (a *assignment) release(give, take *budget) {
	var runs []run
	grower := grower{give: give, take: take, used: make([]int, len(a.members))}
	for {
		runs = a.slotRuns(runs)
		var best cluster
		for at := 0; at <= len(runs); at++ {
			if c := grower.grow(runs, at); c.better(best) {
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
	tokens     int   // of them by token
	touched    []int
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
	if at < len(runs) && at > 0 && !g.gives(runs[at]) && !g.gives(runs[at-1]) {
		return cluster{}
	}
	var c cluster
	right, left := at, at-1
	cutRight, cutLeft := 0, 0 // slots taken of the run at which it ends
	for ; right < len(runs); right++ {
		n, whole := g.takeOf(runs[right])
		if c.slots += n; !whole {
			cutRight = n
			break
		}
	}
	for ; left >= 0; left-- {
		if left == right { // the other side has cut it
			break
		}
		n, whole := g.takeOf(runs[left])
		if c.slots += n; !whole {
			cutLeft = n
			break
		}
	}
	for _, m := range g.touched {
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

// takeOf takes as much of r as its owner's budget allows.
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

// end is 0 where the cluster ends at slots of one that may take it, otherwise 1.
func (g *grower) end(r run) int {
	if r.owner >= 0 && g.take.left(r.owner) > 0 {
		return 0
	}
	return 1
}
