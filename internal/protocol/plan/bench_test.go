package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkAssign plans for tables that have a history of single joins and crashes behind them.
func BenchmarkAssign(b *testing.B) {
	for _, size := range []struct{ slots, members int }{{256, 10}, {4096, 100}, {4096, 1000}} {
		old := worn(size.slots, size.members, 200)
		n := len(old.Members)
		leave := make([]Member, n)
		half := make([]Member, n)
		for i, m := range old.Members {
			leave[i], half[i] = m, m
			leave[i].Leaves = i == n/2
			half[i].Leaves = i%2 == 0
		}
		var double []Member
		for i := range n {
			double = append(double, old.Members[i], Member{ID: fmt.Sprint("new-", i), Weight: 1, Receives: true})
		}
		for _, c := range []struct {
			name string
			in   Input
		}{
			{"first", Input{Owners: make([]string, size.slots), Members: old.Members}},
			{"still", old},
			{"join", Input{Owners: old.Owners, Members: append([]Member{{ID: "new", Weight: 1, Receives: true}}, old.Members...)}},
			{"leave", Input{Owners: old.Owners, Members: leave}},
			{"crash", Input{Owners: old.Owners, Members: old.Members[1:]}},
			{"halve", Input{Owners: old.Owners, Members: half}},
			{"double", Input{Owners: old.Owners, Members: double}},
		} {
			b.Run(fmt.Sprintf("%dx%d/%s", size.slots, size.members, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Assign(c.in)
				}
			})
		}
	}
}

// worn returns a table after that many joins and crashes at random.
func worn(slots, members, steps int) Input {
	rng := rand.New(rand.NewPCG(1, uint64(members)))
	in := Input{Owners: make([]string, slots)}
	for range members {
		in.Members = append(in.Members, Member{ID: fmt.Sprintf("m-%08x", rng.Uint32()), Weight: 1, Receives: true})
	}
	in.Owners = Assign(in)
	for range steps {
		i := rng.IntN(len(in.Members))
		lost := in.Members[i]
		in.Members[i] = in.Members[len(in.Members)-1]
		in.Members = in.Members[:len(in.Members)-1]
		in.Owners = Assign(in)
		lost.ID = fmt.Sprintf("m-%08x", rng.Uint32())
		in.Members = append(in.Members, lost)
		in.Owners = Assign(in)
	}
	return in
}
