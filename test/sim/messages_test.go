package sim_test

import (
	"os"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/sim"
)

// crowd returns a rota of n members that has nothing to do.
func crowd(t *testing.T, n int) *sim.Crowd {
	t.Helper()
	c, err := sim.NewCrowd(n)
	require.NoError(t, err)
	return c
}

// The load on the API server grows with the number of members and no faster (rule R3), and from some hundred members on
// less. docs/benchmarks.md has the figures; `make check WHAT=sim` runs this with 1,000 members.
func TestMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	sizes := []int{10, 100}
	if os.Getenv("SIM_MEMBERS") == "1000" {
		sizes = append(sizes, 1000)
	}
	var steady, join, crash []sim.Traffic
	for _, n := range sizes {
		c := crowd(t, n)
		// In these times members renew about as often wherever one begins: they are multiples of 2 s and of 3.5 s.
		steady = append(steady, c.During(14*time.Second, func() {}, nil))
		join = append(join, c.During(42*time.Second, func() { c.Join("v1") }, nil))
		if why := c.Unsettled(); why != "" || c.Failed() {
			t.Fatal(n, why, c.Violations())
		}
		crash = append(crash, c.During(70*time.Second, func() { c.Nodes[n/2].Crash() }, nil))
		if why := c.Unsettled(); why != "" || c.Failed() {
			t.Fatal(n, why, c.Violations())
		}
	}
	for _, what := range []struct {
		name string
		of   func(*sim.Traffic) int
	}{{"requests", (*sim.Traffic).Total}, {"watch events", func(t *sim.Traffic) int { return t.Events }}} {
		small := float64(what.of(&steady[0])) / float64(sizes[0])
		for i, n := range sizes[1:] {
			if large := float64(what.of(&steady[i+1])) / float64(n); large > 1.5*small {
				t.Errorf("%s per member in 14 s: %.1f among %d members, %.1f among 10: want at most 1.5 times that",
					what.name, large, n, small)
			}
		}
	}
	for i, n := range sizes {
		if rate := float64(steady[i].Total()) / steady[i].Took.Seconds(); rate > 300 {
			t.Errorf("%d members send %.0f requests per second at rest, want at most 300", n, rate)
		}
	}
	// Three times what was seen of each size, beyond the steady state: a change of the table goes to everybody, and whoever
	// has slots to give or to take writes once or more.
	for i, size := range sizes {
		for _, phase := range []struct {
			name             string
			of               sim.Traffic
			requests, events int
		}{
			{"join", join[i], []int{100, 400, 100}[i], []int{600, 13_500, 24_000}[i]},
			{"crash", crash[i], []int{130, 650, 100}[i], []int{200, 13_500, 33_000}[i]},
		} {
			requests, events := phase.of.Beyond(steady[i])
			if requests > phase.requests || events > phase.events {
				t.Errorf("%d members, %s: %d requests and %d watch events, want at most %d and %d", size, phase.name, requests,
					events, phase.requests, phase.events)
			}
		}
	}
}
