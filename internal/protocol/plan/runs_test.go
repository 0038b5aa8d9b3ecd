package plan

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// maxRuns is how many runs a selector may name (rule R17); a member with more needs a superset.
const maxRuns = 32

// A member's runs stay few over long histories of joins and crashes (rule R17). Where a hundred members share 4096
// slots some are beyond maxRuns now and then: who joins 60 others that own 65 slots each must take a single slot from
// each of them. Those cases have a limit of their own, which is what was measured and some more.
func TestRunsStayFew(t *testing.T) {
	for _, c := range []struct{ slots, low, high, limit int }{
		{256, 3, 4, maxRuns},
		{256, 3, 20, maxRuns},
		{256, 15, 20, maxRuns},
		{1024, 3, 50, maxRuns},
		{4096, 3, 20, maxRuns},
		{4096, 99, 101, maxRuns},
		{4096, 80, 120, 45},
		{4096, 20, 200, 60},
	} {
		t.Run(fmt.Sprintf("%d slots, %d to %d members", c.slots, c.low, c.high), func(t *testing.T) {
			w := newWalk(c.slots)
			for range (c.low + min(c.high, 120)) / 2 {
				w.join()
			}
			w.plan()
			for range steps(t) {
				if n := len(w.in.Members); n <= c.low || (n < c.high && w.rng.IntN(2) == 0) {
					w.join()
				} else {
					w.crash()
				}
				w.plan()
			}
			w.report(t, c.limit)
		})
	}
}

// A rota grows member by member and shrinks again, which scatters slots more than joins and crashes by turns.
func TestRunsGrowing(t *testing.T) {
	for _, c := range []struct{ slots, members, limit int }{
		{256, 20, maxRuns}, {1024, 100, maxRuns}, {4096, 30, maxRuns}, {4096, 40, 40}, {4096, 100, 60},
	} {
		t.Run(fmt.Sprintf("%d slots, %d members", c.slots, c.members), func(t *testing.T) {
			w := newWalk(c.slots)
			for range c.members {
				w.join()
				w.plan()
			}
			for len(w.in.Members) > 1 {
				w.crash()
				w.plan()
			}
			w.report(t, c.limit)
		})
	}
}

// steps is how many joins and crashes a walk has: $STEPS, or else so many that the test takes a few seconds.
func steps(t *testing.T) int {
	text := os.Getenv("STEPS")
	if text == "" {
		return 500
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("STEPS=%s: %v", text, err)
	}
	return n
}

type walk struct {
	in                        Input
	rng                       *rand.Rand
	worst, sum, members, over int
}

func newWalk(slots int) *walk {
	return &walk{in: Input{Owners: make([]string, slots)}, rng: rand.New(rand.NewPCG(1, 2))}
}

func (w *walk) join() {
	w.in.Members = append(w.in.Members, Member{ID: fmt.Sprintf("m-%08x", w.rng.Uint32()), Weight: 1, Receives: true})
}

func (w *walk) crash() {
	i := w.rng.IntN(len(w.in.Members))
	w.in.Members = slices.Delete(w.in.Members, i, i+1)
}

func (w *walk) plan() {
	w.in.Owners = Assign(w.in)
	for _, n := range countRuns(w.in.Owners) {
		w.worst, w.sum, w.members = max(w.worst, n), w.sum+n, w.members+1
		if n > maxRuns {
			w.over++
		}
	}
}

func (w *walk) report(t *testing.T, limit int) {
	t.Helper()
	t.Logf("runs of a member: at most %d, mean %.2f; %.4f %% of the time more than %d",
		w.worst, float64(w.sum)/float64(w.members), 100*float64(w.over)/float64(w.members), maxRuns)
	if w.worst > limit {
		t.Errorf("a member has %d runs: want at most %d", w.worst, limit)
	}
}
