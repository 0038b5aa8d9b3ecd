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

// Of more members than these, a rollout, and a tenth of it, take hours, or tens of gigabytes of memory.
const rolloutMost, tenthMost = 100, 300

// crowds prints what rotas of many members say, as a table of docs/benchmarks.md.
func crowds(sizes string) error {
	fmt.Println("| members | | took, s | longest, s | slots moved | requests | in the busiest second | per second | " +
		"watch events | of the table | MB of tables |")
	fmt.Println("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
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

// crowd prints what happens to rotas of n members, each to a new one.
func crowd(n int) error {
	for _, part := range []struct {
		name string
		most int // members; 0: any number
		do   func(c *sim.Crowd) sim.Traffic
	}{
		{"at rest", 0, func(c *sim.Crowd) sim.Traffic { return c.During(time.Minute, func() {}, nil) }},
		{"one joins", 0, func(c *sim.Crowd) sim.Traffic {
			return c.During(crowdLimit, func() { c.Join("v1") }, c.Settled)
		}},
		{"one leaves", 0, func(c *sim.Crowd) sim.Traffic {
			return c.During(crowdLimit, c.Live()[n/3].Leave, c.Settled)
		}},
		{"one crashes", 0, func(c *sim.Crowd) sim.Traffic {
			return c.During(crowdLimit, c.Live()[n/2].Crash, c.Settled)
		}},
		{"one in ten crashes", 0, func(c *sim.Crowd) sim.Traffic {
			return c.During(crowdLimit, func() {
				for i, node := range c.Live() {
					if i%10 == 3 {
						node.Crash()
					}
				}
			}, c.Settled)
		}},
		{"one in ten is replaced", tenthMost, func(c *sim.Crowd) sim.Traffic { return c.Roll("v2", n/10, n/10, crowdLimit) }},
		{"a rollout, a tenth at a time", rolloutMost, func(c *sim.Crowd) sim.Traffic {
			return c.Roll("v2", n, n/10, crowdLimit)
		}},
	} {
		if part.most > 0 && n > part.most {
			continue
		}
		c, err := sim.NewCrowd(n)
		if err != nil {
			return err
		}
		t := part.do(c)
		if c.Failed() {
			return fmt.Errorf("%s: %s", part.name, c.Violations()[0])
		}
		if why := c.Unsettled(); why != "" {
			return fmt.Errorf("%s: after %v: %s", part.name, t.Took, why)
		}
		fmt.Printf("| %s | %s | %.1f | %.1f | %s | %s | %s | %.0f | %s | %s | %.1f |\n", grouped(n), part.name,
			t.Took.Seconds(), t.Idle.Seconds(), grouped(t.Moved), grouped(t.Total()), grouped(t.Busiest),
			float64(t.Total())/t.Took.Seconds(), grouped(t.Events), grouped(t.Tables), float64(t.TableBytes)/1e6)
	}
	return nil
}

// grouped has a comma between thousands.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
