package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A member's runs stay below what a label selector can name, over long histories (rule R17).
func TestRunsStayFew(t *testing.T) {
	for _, c := range []struct{ slots, low, high, start, steps int }{
		{256, 3, 20, 10, 10_000},
		{256, 3, 4, 3, 10_000},
		{256, 15, 20, 17, 10_000},
		{4096, 3, 20, 10, 10_000},
		{4096, 80, 120, 100, 10_000},
		{4096, 99, 101, 100, 10_000},
		{4096, 20, 200, 100, 10_000},
	} {
		t.Run(fmt.Sprintf("%dx%d-%d", c.slots, c.low, c.high), func(t *testing.T) {
			if testing.Short() {
				c.steps = 500
			}
			rng := rand.New(rand.NewPCG(1, 2))
			in := Input{Owners: make([]string, c.slots)}
			next := 0
			join := func() {
				in.Members = append(in.Members, Member{ID: fmt.Sprintf("m-%08x", rng.Uint32()), Weight: 1, Receives: true})
				next++
			}
			for range c.start {
				join()
			}
			in.Owners = Assign(in)
			worst, sum, members := 0, 0, 0
			for range c.steps {
				grow := rng.IntN(2) == 0
				if len(in.Members) <= c.low {
					grow = true
				} else if len(in.Members) >= c.high {
					grow = false
				}
				if grow {
					join()
				} else {
					i := rng.IntN(len(in.Members))
					in.Members = slices.Delete(in.Members, i, i+1)
				}
				in.Owners = Assign(in)
				for _, n := range countRuns(in.Owners) {
					worst, sum, members = max(worst, n), sum+n, members+1
				}
			}
			t.Logf("%d steps: max %d runs, mean %.2f", c.steps, worst, float64(sum)/float64(members))
			if worst > 32 {
				t.Errorf("a member has %d runs: want at most 32", worst)
			}
		})
	}
}
