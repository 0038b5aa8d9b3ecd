package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/test/sim"
)

// crowdLimit bounds each thing that happens to a rota of many, in simulated time.
const crowdLimit = time.Hour

// rollsOut is how many members may be replaced: a rollout of more takes many minutes of this machine's time.
const rollsOut = 100

// crowds prints what rotas of many members cost, as a table of docs/scale.md.
func crowds(sizes string) error {
	fmt.Printf("%d slots.\n\n", sim.CrowdSlots)
	fmt.Println("| members | | took, s | longest that nobody worked on a slot, s | slots moved | requests, all | busiest second | per second | watch " +
		"events | of the table | MB of tables | step, µs |")
	fmt.Println("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 10 || n > sim.CrowdSlots/2 {
			return fmt.Errorf("%q members: must be a number from 10 to %d", text, sim.CrowdSlots/2)
		}
		if err := crowd(n); err != nil {
			return fmt.Errorf("%d members: %w", n, err)
		}
	}
	return nil
}

func crowd(n int) error {
	c, err := sim.NewCrowd(n)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name  string
		rolls bool
		do    func() sim.Traffic
	}{
		{"at rest", false, func() sim.Traffic { return c.During(time.Minute, func() {}, nil) }},
		{"one joins", false, func() sim.Traffic { return c.During(crowdLimit, func() { c.Join("v1") }, c.Settled) }},
		{"one leaves", false, func() sim.Traffic { return c.During(crowdLimit, c.Live()[n/3].Leave, c.Settled) }},
		{"one crashes", false, func() sim.Traffic { return c.During(crowdLimit, c.Live()[n/2].Crash, c.Settled) }},
		{"one in ten crashes", false, func() sim.Traffic {
			return c.During(crowdLimit, func() {
				for i, node := range c.Live() {
					if i%10 == 3 {
						node.Crash()
					}
				}
			}, c.Settled)
		}},
		{"one in ten is replaced", false, func() sim.Traffic { return c.Roll("v2", n/10, n/10, crowdLimit) }},
		{"a rollout, a tenth at a time", true, func() sim.Traffic {
			return c.Roll("v3", len(c.Live()), n/10, crowdLimit)
		}},
	} {
		if part.rolls && n > rollsOut {
			continue
		}
		begun := time.Now()
		t := part.do()
		if c.Failed() {
			return fmt.Errorf("%s: %s", part.name, c.Violations()[0])
		}
		if why := c.Unsettled(); why != "" {
			return fmt.Errorf("%s: after %v: %s", part.name, t.Took, why)
		}
		fmt.Printf("| %d | %s | %.1f | %.1f | %d | %d | %d | %.1f | %d | %d | %.1f | %.0f |\n", n, part.name, t.Took.Seconds(),
			t.Idle.Seconds(), t.Moved, t.Total(), t.Busiest, float64(t.Total())/t.Took.Seconds(), t.Events, t.Tables,
			float64(t.Tables)*float64(c.TableBytes())/1e6, float64(time.Since(begun).Microseconds())/float64(t.Steps))
	}
	return nil
}
