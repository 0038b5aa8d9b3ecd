package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/internal/protocol/plan"
	"github.com/rota-dev/rota/test/require"
)

func members(n int) []plan.Member {
	var out []plan.Member
	for i := range n {
		out = append(out, plan.Member{ID: fmt.Sprintf("m%d", i), Weight: 1, Receives: true})
	}
	return out
}

func everybody(int, int) bool { return true }

func counts(owners []string) map[string]int {
	out := map[string]int{}
	for _, o := range owners {
		out[o]++
	}
	return out
}

// Ten duties of four members are three, three, two and two.
func TestDutiesAreSpreadEvenly(t *testing.T) {
	owners := make([]string, 10)
	in := plan.DutyInput{Owners: owners, Moving: make([]bool, 10), Members: members(4), Can: everybody}
	got := plan.AssignDuties(in)
	require.Equal(t, "duties", map[string]int{"m0": 3, "m1": 3, "m2": 2, "m3": 2}, counts(got))
	// A fifth member takes two, and nothing else moves.
	in.Owners, in.Members = got, members(5)
	more := plan.AssignDuties(in)
	moved := 0
	for i := range got {
		if got[i] != more[i] {
			moved++
			if more[i] != "m4" {
				t.Errorf("duty %d moved from %s to %s", i, got[i], more[i])
			}
		}
	}
	if moved != 2 {
		t.Errorf("%d duties moved, want 2: %v", moved, more)
	}
	// When a member leaves, its duties alone move.
	in.Owners, in.Members[0].Leaves, in.Members[0].Receives = more, true, false
	less := plan.AssignDuties(in)
	for i := range more {
		if moves := more[i] == "m0"; moves != (more[i] != less[i]) {
			t.Errorf("duty %d of %s is %s's when m0 leaves", i, more[i], less[i])
		}
	}
	if c := counts(less); c["m0"] != 0 || slices.Max([]int{c["m1"], c["m2"], c["m3"], c["m4"]}) > 3 {
		t.Errorf("%v", c)
	}
}

// In a rollout what must move goes to the new build, and the old members' duties stay until they leave.
func TestDutiesInARollout(t *testing.T) {
	ms := members(4)
	ms[3].Prefer = true
	in := plan.DutyInput{
		Owners: []string{"m0", "m0", "m0", "m1", "m1", "m2", "m2", "m2"}, Moving: make([]bool, 8), Members: ms, Can: everybody,
		Tolerant: true,
	}
	require.Equal(t, "moved although nothing had to", in.Owners, plan.AssignDuties(in))
	in.Members[0].Leaves, in.Members[0].Receives, in.Only = true, false, "m0"
	want := []string{"m3", "m3", "m3", "m1", "m1", "m2", "m2", "m2"}
	require.Equal(t, "the plan", want, plan.AssignDuties(in))
}

// A path of several moves is taken where the member with most cannot give to the one with least.
func TestDutiesMoveOn(t *testing.T) {
	// m0 can give a0 and a1 to m1 only, m1 can give b0 to m2 only.
	can := map[int][]int{0: {0, 1}, 1: {0, 1}, 2: {0}, 3: {1, 2}}
	in := plan.DutyInput{
		Owners: []string{"m0", "m0", "m0", "m1"}, Moving: make([]bool, 4), Members: members(3),
		Can: func(m, d int) bool { return slices.Contains(can[d], m) },
	}
	want := []string{"m1", "m0", "m0", "m2"}
	require.Equal(t, "the plan", want, plan.AssignDuties(in))
}

// TestDutiesAgainstOracle: the sum of squares is the least there is, by trying all assignments.
func TestDutiesAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, k := rapid.IntRange(1, 4).Draw(t, "members"), rapid.IntRange(0, 6).Draw(t, "duties")
		able := make([][]bool, n)
		ms := members(n)
		names := []string{"", "gone"}
		for i := range ms {
			able[i] = rapid.SliceOfN(rapid.Bool(), k, k).Draw(t, "can")
			ms[i].Leaves = rapid.IntRange(0, 5).Draw(t, "leaves") == 0
			ms[i].Receives = !ms[i].Leaves && rapid.IntRange(0, 5).Draw(t, "receives") > 0
			names = append(names, ms[i].ID)
		}
		in := plan.DutyInput{Members: ms, Can: func(m, d int) bool { return able[m][d] }}
		for d := range k {
			owner := rapid.SampledFrom(names).Draw(t, "owner")
			for i, m := range ms {
				if m.ID == owner && !able[i][d] {
					owner = "" // owners can do what they have
				}
			}
			in.Owners = append(in.Owners, owner)
			in.Moving = append(in.Moving, owner != "" && rapid.IntRange(0, 3).Draw(t, "moving") == 0)
		}
		got := plan.AssignDuties(in)

		order := rapid.Permutation(indices(n)).Draw(t, "order")
		other := in
		other.Members = nil
		for _, i := range order {
			other.Members = append(other.Members, ms[i])
		}
		other.Can = func(m, d int) bool { return able[order[m]][d] }
		require.Equal(t, "the order of members matters", got, plan.AssignDuties(other))

		choices := make([][]int, k)
		index := map[string]int{}
		for i, m := range ms {
			index[m.ID] = i
		}
		for d, owner := range in.Owners {
			o, is := index[owner]
			stays := is && !ms[o].Leaves
			for i, m := range ms {
				if stays && i == o || m.Receives && able[i][d] && !(stays && in.Moving[d]) {
					choices[d] = append(choices[d], i)
				}
			}
			if len(choices[d]) == 0 {
				choices[d] = []int{-1}
			}
			mine, ok := index[got[d]]
			if !ok {
				mine = -1
			}
			if !slices.Contains(choices[d], mine) {
				t.Fatalf("duty %d of %q may not be %q's", d, owner, got[d])
			}
		}
		load := make([]int, n)
		for _, id := range got {
			if id != "" {
				load[index[id]]++
			}
		}
		if mine, best := squares(load), least(choices, make([]int, n)); mine != best {
			t.Fatalf("sum of squares %d, the least is %d: %v of %v", mine, best, got, in.Owners)
		}
	})
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func squares(load []int) (sum int) {
	for _, n := range load {
		sum += n * n
	}
	return sum
}

func least(choices [][]int, load []int) int {
	if len(choices) == 0 {
		return squares(load)
	}
	best := 1 << 30
	for _, m := range choices[0] {
		if m >= 0 {
			load[m]++
		}
		best = min(best, least(choices[1:], load))
		if m >= 0 {
			load[m]--
		}
	}
	return best
}

// Of 1,000 members 128 can do duties, and have four each: there is nothing to do.
func BenchmarkBalancedDuties(b *testing.B) {
	in := plan.DutyInput{
		Owners: make([]string, 512), Moving: make([]bool, 512), Members: members(1000),
		Can: func(m, _ int) bool { return m < 128 },
	}
	for d := range in.Owners {
		in.Owners[d] = fmt.Sprintf("m%d", d%128)
	}
	for b.Loop() {
		plan.AssignDuties(in)
	}
}

func BenchmarkDuties(b *testing.B) {
	in := plan.DutyInput{Owners: make([]string, 200), Moving: make([]bool, 200), Members: members(1000), Can: everybody}
	for d := range in.Owners {
		in.Owners[d] = fmt.Sprintf("m%d", d%20)
	}
	for b.Loop() {
		plan.AssignDuties(in)
	}
}
