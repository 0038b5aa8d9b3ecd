package plan

import (
	"cmp"
	"math"
	"slices"
)

// DutyInput is the input of AssignDuties, which does not change it.
type DutyInput struct {
	// Owners has an entry for each duty: its owner once the current moves are done, or "". An ID that is not in Members
	// counts as a leaver's.
	Owners []string
	// Moving marks the duties that are already moving. They stay with their owner unless that member leaves or is gone.
	Moving []bool
	// Members are as in Input, in any order. Weights are ignored.
	Members []Member
	// Can reports whether a member, by its index in Members, can do a duty.
	Can func(member, duty int) bool
	// Tolerant and Only are as in Input. While Tolerant, only duties that must move do.
	Tolerant bool
	Only     string
}

// AssignDuties returns the owner of every duty. It makes few changes to Input.Owners that lead to this:
//
//   - Every duty that a receiving member can do has an owner that does not leave. Leavers' other duties have none.
//   - No move of a duty, nor a chain of moves would make two members' numbers of duties more even. So where all members
//     can do all duties, their numbers differ by at most one.
//   - While Tolerant, what must move goes to preferred members up to the average, and then to those with the fewest
//     duties. Nothing else moves.
//
// The problem is semi-matching in bipartite graphs. A semi-matching has the least sum of squares if and only if it has
// no cost-reducing path (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite graphs and load balancing, 2006).
// The algorithm starts from the current owners and takes the shortest such paths, so that few duties move.
//
// The result is a new slice. It is a function of the input, and the order of Members does not matter.
func AssignDuties(in DutyInput) []string {
	d := newDuties(in)
	for duty, o := range d.own {
		if o == free {
			d.give(duty, d.best(duty))
		}
	}
	if !in.Tolerant {
		for d.even() {
		}
	}
	out := slices.Clone(in.Owners)
	for duty, o := range d.own {
		switch o {
		case foreign:
		case free:
			out[duty] = ""
		default:
			out[duty] = in.Members[o].ID
		}
	}
	return out
}

// duties is the work in progress. It refers to members by their index in in.Members.
type duties struct {
	in    DutyInput
	order []int  // the members that do not leave, by rising ID
	own   []int  // per duty: a member, free or foreign
	fixed []bool // per duty: never to be taken from its owner
	load  []int  // per member
	able  []bool // per member: it receives, and can do some duty
	fair  int    // the average of members that receive, rounded up
}

func newDuties(in DutyInput) *duties {
	d := &duties{
		in: in, own: make([]int, len(in.Owners)), fixed: make([]bool, len(in.Owners)), load: make([]int, len(in.Members)),
	}
	index := map[string]int{}
	receivers := 0
	for i, m := range in.Members {
		if m.Leaves {
			continue
		}
		index[m.ID] = i
		d.order = append(d.order, i)
		if m.Receives {
			receivers++
		}
	}
	slices.SortFunc(d.order, func(x, y int) int { return cmp.Compare(in.Members[x].ID, in.Members[y].ID) })
	d.able = make([]bool, len(in.Members))
	for i, m := range in.Members {
		for duty := 0; duty < len(in.Owners) && m.Receives && !m.Leaves && !d.able[i]; duty++ {
			d.able[i] = in.Can(i, duty)
		}
	}
	d.fair = (len(in.Owners) + receivers - 1) / max(receivers, 1)
	for duty, id := range in.Owners {
		o, stays := index[id]
		mine := in.Only == "" || in.Only == id
		switch {
		case stays:
			d.own[duty], d.fixed[duty] = o, !mine || in.Moving[duty]
			d.load[o]++
		case mine:
			d.own[duty] = free
		default:
			d.own[duty] = foreign
		}
	}
	return d
}

func (d *duties) give(duty, member int) {
	if member < 0 {
		return
	}
	d.own[duty] = member
	d.load[member]++
}

func (d *duties) takes(member, duty int) bool {
	return d.in.Members[member].Receives && d.in.Can(member, duty)
}

// best returns the member that should get a free duty, or -1 if no member can do it.
func (d *duties) best(duty int) int {
	best := -1
	first := func(m int) bool { return d.in.Tolerant && d.in.Members[m].Prefer && d.load[m] < d.fair }
	for _, m := range d.order {
		if !d.takes(m, duty) {
			continue
		}
		switch {
		case best < 0, first(m) && !first(best), first(m) == first(best) && d.load[m] < d.load[best]:
			best = m
		}
	}
	return best
}

// even moves duties along a shortest cost-reducing path, from a member to one with at least two duties fewer. Of
// several paths it takes one from the member with the most duties. It reports whether there was one.
func (d *duties) even() bool {
	least := math.MaxInt
	for _, m := range d.order {
		if d.able[m] {
			least = min(least, d.load[m])
		}
	}
	sources := slices.DeleteFunc(slices.Clone(d.order), func(m int) bool { return d.load[m]-2 < least })
	slices.SortStableFunc(sources, func(x, y int) int { return cmp.Compare(d.load[y], d.load[x]) })
	var best []step
	for _, source := range sources {
		if path := d.path(source); path != nil && (best == nil || len(path) < len(best)) {
			best = path
		}
		if len(best) == 1 {
			break
		}
	}
	for _, step := range best {
		d.load[d.own[step.duty]]--
		d.own[step.duty] = step.to
		d.load[step.to]++
	}
	return best != nil
}

// step moves a duty to a member.
type step struct{ duty, to int }

// path searches for a cost-reducing path breadth first.
func (d *duties) path(source int) []step {
	came := make([]step, len(d.in.Members))
	rest := slices.DeleteFunc(slices.Clone(d.order), func(m int) bool { return m == source || !d.able[m] })
	queue := []int{source}
	for len(queue) > 0 {
		from := queue[0]
		queue = queue[1:]
		next := d.reach(from, came, &rest)
		best := -1
		for _, m := range next {
			if d.load[m]+2 <= d.load[source] && (best < 0 || d.load[m] < d.load[best]) {
				best = m
			}
		}
		if best >= 0 {
			return d.trace(came, source, best)
		}
		queue = append(queue, next...)
	}
	return nil
}

// reach removes from rest the members that can take a duty of the member from, and returns them by rising ID.
func (d *duties) reach(from int, came []step, rest *[]int) []int {
	var found []int
	for duty, o := range d.own {
		if o != from || d.fixed[duty] || len(*rest) == 0 {
			continue
		}
		*rest = slices.DeleteFunc(*rest, func(m int) bool {
			if !d.in.Can(m, duty) {
				return false
			}
			came[m] = step{duty, m}
			found = append(found, m)
			return true
		})
	}
	slices.SortFunc(found, func(x, y int) int { return cmp.Compare(d.in.Members[x].ID, d.in.Members[y].ID) })
	return found
}

// trace returns the steps of the path from source, last step first, so that no member is ever two above its number.
func (d *duties) trace(came []step, source, to int) (path []step) {
	for to != source {
		s := came[to]
		path = append(path, s)
		to = d.own[s.duty]
	}
	return path
}
