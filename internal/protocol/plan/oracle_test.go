package plan

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// oracle is a second, slower and simpler opinion on what Assign may do: it counts slots and never looks for them.
type oracle struct {
	in                     Input
	members                map[string]Member // those that do not leave
	have, pinned           map[string]int
	must, total, receivers int // must: slots that need another owner
}

func newOracle(in Input) *oracle {
	o := &oracle{in: in, members: map[string]Member{}, have: map[string]int{}, pinned: map[string]int{}}
	for _, m := range in.Members {
		if !m.Leaves {
			o.members[m.ID] = m
			if m.Receives {
				o.receivers++
			}
		}
	}
	for s := range in.Owners {
		id := in.Owners[s]
		_, stays := o.members[id]
		switch {
		case stays:
			o.total++
			o.have[id]++
			if o.fixed(s) {
				o.pinned[id]++
			}
		case !o.fixed(s):
			o.total++
			o.must++
		}
	}
	return o
}

// fixed says whether slot s must keep its owner, or its want of one.
func (o *oracle) fixed(s int) bool {
	if id := o.in.Owners[s]; o.in.Only != "" && o.in.Only != id {
		return true
	} else if _, stays := o.members[id]; !stays {
		return false
	}
	return o.in.Moving.Has(slot.Slot(s))
}

// fair returns the shares at the level at which they add up to total, with lower bounds lo: it tries all the levels at
// which somebody reaches a bound, and goes linearly between them.
func (o *oracle) fair(lo func(id string) int, total int) map[string]*big.Rat {
	sum := func(level *big.Rat) (*big.Rat, map[string]*big.Rat) {
		all, shares := new(big.Rat), map[string]*big.Rat{}
		for id, m := range o.members {
			share := new(big.Rat).Mul(level, big.NewRat(int64(m.Weight), 1))
			if low := big.NewRat(int64(lo(id)), 1); share.Cmp(low) < 0 {
				share = low
			}
			if high := big.NewRat(int64(o.have[id]), 1); !m.Receives && share.Cmp(high) > 0 {
				share = high
			}
			shares[id] = share
			all.Add(all, share)
		}
		return all, shares
	}
	levels := []*big.Rat{new(big.Rat), big.NewRat(int64(len(o.in.Owners)), 1)}
	for id, m := range o.members {
		levels = append(levels, big.NewRat(int64(lo(id)), int64(m.Weight)), big.NewRat(int64(o.have[id]), int64(m.Weight)))
	}
	slices.SortFunc(levels, (*big.Rat).Cmp)
	want := big.NewRat(int64(total), 1)
	for i := 1; i < len(levels); i++ {
		low, _ := sum(levels[i-1])
		high, _ := sum(levels[i])
		if high.Cmp(want) < 0 {
			continue
		}
		if low.Cmp(want) >= 0 {
			_, shares := sum(levels[i-1])
			return shares
		}
		part := new(big.Rat).Quo(new(big.Rat).Sub(want, low), new(big.Rat).Sub(high, low))
		step := new(big.Rat).Sub(levels[i], levels[i-1])
		_, shares := sum(step.Add(step.Mul(step, part), levels[i-1]))
		return shares
	}
	return nil
}

func floor(r *big.Rat) int { return int(new(big.Int).Div(r.Num(), r.Denom()).Int64()) }

func ceiling(r *big.Rat) int { return -floor(new(big.Rat).Neg(r)) }

// check fails unless out keeps every promise of Assign(in).
func check(t require.T, in Input, out []string) {
	t.Helper()
	o := newOracle(in)
	got := map[string]int{}
	moved := 0
	for s, id := range out {
		if id != in.Owners[s] {
			moved++
			if o.fixed(s) {
				t.Fatalf("slot %d: moved from %q to %q, but it was not to be touched", s, in.Owners[s], id)
			}
			if id != "" && !o.members[id].Receives {
				t.Fatalf("slot %d: given to %q, which does not receive", s, id)
			}
		}
		if _, stays := o.members[id]; !stays && !o.fixed(s) && (o.receivers > 0 || id != "") {
			t.Fatalf("slot %d: left with %q", s, id)
		}
		got[id]++
	}
	switch {
	case o.receivers == 0:
		for s, id := range out {
			if _, stays := o.members[id]; stays != (id == in.Owners[s] && id != "" && stays) {
				t.Fatalf("slot %d: %q became %q though nobody receives", s, in.Owners[s], id)
			}
		}
	case in.Tolerant:
		o.checkTolerant(t, got, moved)
	default:
		o.checkFair(t, got, moved)
	}
	checkSame(t, in, out)
}

// checkFair checks balance and the number of moves (rule R17).
func (o *oracle) checkFair(t require.T, got map[string]int, moved int) {
	t.Helper()
	fair := o.fair(func(id string) int { return o.pinned[id] }, o.total)
	surplus, deficit := 0, 0
	for id, share := range fair {
		low, high := floor(share), ceiling(share)
		if got[id] < low || got[id] > high {
			t.Fatalf("%s has %d slots, its fair share is %s", id, got[id], share.FloatString(3))
		}
		surplus += max(0, o.have[id]-high)
		deficit += max(0, low-o.have[id])
	}
	// What is in surplus moves, and so does what is needed beyond the slots without owner; nothing else has to.
	if least := o.must + max(surplus, deficit-o.must); moved != least {
		t.Fatalf("%d slots moved, %d suffice", moved, least)
	}
}

// checkTolerant checks what R9 asks for during a rollout.
func (o *oracle) checkTolerant(t require.T, got map[string]int, moved int) {
	t.Helper()
	fair := o.fair(func(string) int { return 0 }, len(o.in.Owners))
	excess, room, othersGained := 0, 0, false
	for id, share := range fair {
		m := o.members[id]
		limit := max(ceiling(share), floor(new(big.Rat).Mul(share, big.NewRat(5, 4))))
		keeps := max(o.pinned[id], min(o.have[id], limit))
		excess += o.have[id] - keeps
		if got[id] < keeps || got[id] > max(keeps, limit) {
			t.Fatalf("%s has %d slots, had %d of which it may keep %d, and may get up to %d", id, got[id], o.have[id], keeps, limit)
		}
		if m.Receives && m.Prefer {
			room += max(0, limit-got[id])
		} else if got[id] > keeps {
			othersGained = true
		}
	}
	if o.preferred() && othersGained && room > 0 {
		t.Fatalf("others got slots though the preferred could take %d more", room)
	}
	if moved != o.must+excess {
		t.Fatalf("%d slots moved, %d suffice", moved, o.must+excess)
	}
}

func (o *oracle) preferred() bool {
	for _, m := range o.members {
		if m.Receives && m.Prefer {
			return true
		}
	}
	return false
}

// checkSame checks that the order of members does not matter, and that a plan carried out is final.
func checkSame(t require.T, in Input, out []string) {
	t.Helper()
	shuffled := in
	shuffled.Members = slices.Clone(in.Members)
	rand.New(rand.NewPCG(uint64(len(in.Members)), 7)).Shuffle(len(in.Members), func(i, j int) {
		shuffled.Members[i], shuffled.Members[j] = shuffled.Members[j], shuffled.Members[i]
	})
	require.Equal(t, "another order of members gives another plan", out, Assign(shuffled))
	// What one that stays gave up, by rounding, changes what it may own from then on.
	o := newOracle(in)
	for s, id := range in.Owners {
		if m, stays := o.members[id]; stays && id != out[s] && (in.Only != "" || !m.Receives) {
			return
		}
	}
	again := in
	again.Owners = out
	require.Equal(t, "the plan, carried out, is planned again", out, Assign(again))
}

// countRuns returns the number of runs per owner.
func countRuns(owners []string) map[string]int {
	runs := map[string]int{}
	for s, o := range owners {
		if s == 0 || owners[s-1] != o {
			runs[o]++
		}
	}
	return runs
}

// changes returns the number of slots whose owner differs.
func changes(t testing.TB, before, after []string) int {
	t.Helper()
	if len(before) != len(after) {
		t.Fatalf("%d slots became %d", len(before), len(after))
	}
	n := 0
	for s := range before {
		if before[s] != after[s] {
			n++
		}
	}
	return n
}
