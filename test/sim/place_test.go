package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rota-dev/rota/test/sim"
)

// TestARolloutGoesOneWay: in a plain rolling update, one Pod more than usual at a time, every slot goes from the old
// build to the new one once, and none comes back.
func TestARolloutGoesOneWay(t *testing.T) {
	for members := 2; members <= 8; members++ {
		for _, ready := range []time.Duration{2 * time.Second, 15 * time.Second} { // of a new Pod, until an old one goes
			w := sim.New(sim.Options{Slots: 64})
			start := func(pod, build string) *sim.Node {
				return w.Start(&sim.Replica{Pod: pod, PodUID: "uid-" + pod, Container: "main", Build: build, Weight: 1})
			}
			var old []*sim.Node
			for n := range members {
				old = append(old, start(fmt.Sprint("old-", n), "v1"))
			}
			w.Settle(time.Minute)
			before := w.Counts.Handovers
			run := func(d time.Duration) {
				for end := w.Now() + d; w.Now() < end; w.Run(5 * time.Millisecond) {
					now := w.Objects.Table().Table
					for _, r := range now.Runs {
						owner, _ := now.Member(r.Owner)
						if next, ok := now.Member(r.Next); ok && owner.Build == "v2" && next.Build == "v1" {
							t.Fatalf("%d members: slots %v go back from %s to %s", members, r.Slots, owner.ID, next.ID)
						}
					}
				}
			}
			for n, of := range old {
				start(fmt.Sprint("new-", n), "v2")
				run(ready)
				of.Leave()
				run(10 * time.Second)
			}
			w.Settle(time.Minute)
			moves := float64(w.Counts.Handovers-before) / 64
			t.Logf("%d members, ready after %v: %.2f moves per slot", members, ready, moves)
			if w.Failed() || moves > 1.5 {
				t.Errorf("%d members, ready after %v: %.2f moves per slot; %v", members, ready, moves, w.Violations())
			}
		}
	}
}
