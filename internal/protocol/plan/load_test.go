package plan

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// heavy returns the loads of slots, a letter for each: "1" to "9" tenths of a worker, "X" a whole one, "." none.
func heavy(text string) []int64 {
	out := make([]int64, len(text))
	for i, c := range text {
		switch c {
		case 'X':
			out[i] = 1000
		case '.':
		default:
			out[i] = int64(c-'0') * 100
		}
	}
	return out
}

func TestAssignByLoad(t *testing.T) {
	for _, c := range []struct{ why, members, owners, load, want string }{
		{"nothing is known and nobody owns anything: one run each", "abc", "............", "", "aaaabbbbcccc"},
		{"nothing runs: by number", "abc", "............", "............", "aaaabbbbcccc"},
		{"a first assignment by load", "ab", "........", "3.......", "abbbbbbb"},
		{"even loads stay", "ab", "aabbbbbb", "331111..", "aabbbbbb"},
		{"the heaviest that helps most moves", "ab", "aaaabbbb", "5331....", "baaabbbb"},
		{"a hot slot ends alone, but for cold ones", "abc", "aaaabbbc", "X333111.", "caabbbbc"},
		{"a hot slot that is alone stays", "abc", "abbbbccc", "X.......", "abbbbccc"},
		{"nobody gets more than twice its share by number", "abcd", "aabbccdddddddddd", "55555555........", "aabbccdddddddddd"},
		{"little is not worth a move", "ab", "aaaabbbb", "1.......", "aaaabbbb"},
		{"a joiner takes its share of the loads", "abc", "aaaaaabbbbbb", "222222222222", "aaaaccbbbbcc"},
		{"a joiner takes its share of cold ones by number", "abc", "aaaaaabbbbbb", "............", "aaaaccbbbbcc"},
		{"who leaves gives to those with least", "abc-", "aabbbbcccc", "5511112222", "aabbbbbbba"},
		{"a leaver's slots are spread, if loads are not known", "abc-", "abbbbbbbcccc", "", "abbbbbbbbbaa"},
		{"weights count", "a3b", "aaaabbbb", "22222222", "aaaaaabb"},
		{"in a rollout nothing is evened out", "~abc+", "aaaabbbb", "XXXX....", "aaaabbbb"},
		{"in a rollout the latest build comes first", "~abc-d+", "aaaabbbbcccc", "1111........", "aaaabbbbdddd"},
		{"one that does not receive gives, and gets nothing", "a!bc", "aaaabc", "222222", "caabbc"},
		{"each joiner gets one", "ab3c4-", "ccac", ".11X", "baab"},
		{"nobody is left without", "ab3", "ba", ".X", "ba"},
		{"who does not receive counts with what it has", "ab4!c-d-", "cabb", "1111", "aabb"},
		{"slots on their way stay", "ab", "AAAAbbbb", "5551....", "aaaabbbb"},
	} {
		in := LoadInput{Input: example(c.members, c.owners), Moves: 100, Begin: true}
		if c.load != "" {
			in.Load = heavy(c.load)
		}
		owners, _ := AssignByLoad(in)
		if got := line(owners); got != c.want {
			t.Errorf("%s: %s of %s with loads %q becomes %s, want %s", c.why, c.owners, c.members, c.load, got, c.want)
		}
	}
}

// drawLoads draws any input.
func drawLoads(t *rapid.T) LoadInput {
	in := LoadInput{
		Moves: rapid.IntRange(0, 20).Draw(t, "moves"), Begin: rapid.Bool().Draw(t, "begin"),
		Input: Input{Tolerant: rapid.Bool().Draw(t, "tolerant")},
	}
	names := []string{"", "gone"}
	for i := range rapid.IntRange(0, 6).Draw(t, "members") {
		id := fmt.Sprint("m", i)
		names = append(names, id)
		leaves := rapid.IntRange(0, 4).Draw(t, "leaves") == 0
		in.Members = append(in.Members, Member{
			ID: id, Weight: rapid.IntRange(1, 4).Draw(t, "weight"), Leaves: leaves,
			Receives: !leaves && rapid.IntRange(0, 4).Draw(t, "receives") > 0, Prefer: rapid.Bool().Draw(t, "prefer"),
		})
	}
	known := rapid.IntRange(0, 4).Draw(t, "known") > 0
	for s := range 1 << rapid.IntRange(0, 6).Draw(t, "slots") {
		in.Owners = append(in.Owners, rapid.SampledFrom(names).Draw(t, "owner"))
		if rapid.IntRange(0, 5).Draw(t, "moving") == 0 {
			in.Moving.Add(slot.Slot(s))
		}
		if rapid.IntRange(0, 5).Draw(t, "resting") == 0 {
			in.Resting.Add(slot.Slot(s))
		}
		if known {
			in.Load = append(in.Load, rapid.SampledFrom([]int64{0, 0, 1, 10, 100, 300, 1000, MaxLoad, 1 << 60, -5}).Draw(t, "load"))
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "only") == 0 {
		in.Only = rapid.SampledFrom(names).Draw(t, "who")
	}
	return in
}

// Rule R21: what any plan by load keeps to, whatever the loads.
func TestPlansByLoadKeepTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawLoads(t)
		before := slices.Clone(in.Owners)
		got, evened := AssignByLoad(in)
		if !slices.Equal(before, in.Owners) {
			t.Fatal("the input was changed")
		}
		other := in
		other.Members = rapid.Permutation(in.Members).Draw(t, "order")
		again, _ := AssignByLoad(other)
		require.Equal(t, "the order of members matters", got, again)
		members, receivers, had := map[string]Member{}, 0, map[string]int{}
		for _, m := range in.Members {
			members[m.ID] = m
			if m.Receives && !m.Leaves {
				receivers++
			}
		}
		for _, o := range in.Owners {
			had[o]++
		}
		if evened.Len() > in.Moves || (in.Tolerant || in.Load == nil) && !evened.Empty() {
			t.Fatalf("%d slots evened out of %d", evened.Len(), in.Moves)
		}
		for s, to := range got {
			from, stays := members[in.Owners[s]]
			stays = stays && !from.Leaves
			mine := in.Only == "" || in.Only == in.Owners[s]
			may := members[to].Receives && !members[to].Leaves
			switch {
			case to == in.Owners[s] && !stays && mine && receivers > 0:
				t.Fatalf("slot %d stays with %q", s, to)
			case to == in.Owners[s]:
			case to == "" && (stays || receivers > 0), to != "" && !may:
				t.Fatalf("slot %d goes to %q", s, to)
			case !mine, stays && in.Moving.Has(slot.Slot(s)):
				t.Fatalf("slot %d of %q moves, and may not", s, in.Owners[s])
			case stays && evened.Has(slot.Slot(s)) && in.Resting.Has(slot.Slot(s)):
				t.Fatalf("slot %d moves, and rests", s)
			case stays && !evened.Has(slot.Slot(s)) && had[to] > 0:
				t.Fatalf("slot %d goes from %q to %q, which has slots", s, in.Owners[s], to)
			case stays && in.Tolerant:
				t.Fatalf("slot %d goes from %q to %q in a rollout", s, in.Owners[s], to)
			}
		}
	})
}

// rota has members that own slots, and loads.
func drawShares(t *rapid.T) LoadInput {
	in := LoadInput{Begin: true, Input: Input{Members: equal("a", "b", "c", "d")[:rapid.IntRange(2, 4).Draw(t, "members")]}}
	n := 1 << rapid.IntRange(4, 8).Draw(t, "slots")
	in.Owners = Assign(Input{Owners: make([]string, n), Members: in.Members})
	in.Load = rapid.SliceOfN(rapid.Int64Range(0, 300), n, n).Draw(t, "load")
	return in
}

func sums(owners []string, load []int64) map[string]int64 {
	out := map[string]int64{}
	for s, o := range owners {
		out[o] += load[s]
	}
	return out
}

func worst(sums map[string]int64, members int) float64 {
	all, most := int64(0), int64(0)
	for _, n := range sums {
		all += n
		most = max(most, n)
	}
	return float64(most) * float64(members) / float64(all)
}

// Rule R21: with slots that are small beside a member's share, and as many moves as it takes, loads end within a tenth
// of each other; and then nothing moves any more.
func TestLoadsAreEvenedOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawShares(t)
		if len(in.Owners) < 128 {
			t.Skip("a slot is a large part of a share")
		}
		in.Moves = len(in.Owners)
		uneven := worst(sums(in.Owners, in.Load), len(in.Members))
		got, evened := AssignByLoad(in)
		after := worst(sums(got, in.Load), len(in.Members))
		if after > uneven+1e-9 || uneven > 1.32 && after > 1.1 {
			t.Fatalf("from %.2f times the mean to %.2f", uneven, after)
		}
		if evened.Len() > len(in.Owners)/2 {
			t.Fatalf("%d of %d slots moved", evened.Len(), len(in.Owners))
		}
		in.Owners = got
		if _, more := AssignByLoad(in); !more.Empty() {
			t.Fatalf("slots %v move once more", more)
		}
	})
}

// Rule R21: a joiner's share of the loads is as the others', within what a slot costs.
func TestJoinersGetTheirLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawShares(t)
		in.Members = append(slices.Clone(in.Members), Member{ID: "j", Weight: 1, Receives: true})
		got, _ := AssignByLoad(in)
		all, most := int64(0), int64(0)
		for _, n := range in.Load {
			all += n
			most = max(most, n)
		}
		fair := all / int64(len(in.Members))
		if have := sums(got, in.Load)["j"]; have < fair*9/10-2*most || have > fair*11/10+2*most {
			t.Fatalf("it has %d, its fair share is %d, the heaviest slot %d", have, fair, most)
		}
		for s, o := range got {
			if o != in.Owners[s] && o != "j" {
				t.Fatalf("slot %d goes to %s", s, o)
			}
		}
	})
}

// BenchmarkByLoad plans for 1,000 members.
func BenchmarkByLoad(b *testing.B) {
	in := LoadInput{Input: worn(4096, 1000, 200), Moves: 256, Begin: true, Load: make([]int64, 4096)}
	for s := range in.Load {
		in.Load[s] = int64(s % 97 * 10)
	}
	for b.Loop() {
		AssignByLoad(in)
	}
}
