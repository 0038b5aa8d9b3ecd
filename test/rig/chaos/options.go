package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/slot"
)

// Options are the options of Run.
type Options struct {
	// Runs is the number of runs. They take the faults in turns.
	Runs int
	// Faults names the faults, see Names. Default: all that are usual.
	Faults []string
	// Fence has the API servers refuse writes by Pods that are not members.
	Fence bool
	// Objects is the number of Websites, Rate how many of them are changed per second; half of that is one and the same.
	Objects int
	Rate    float64
	// Slots is the number of slots. Lease is the members' LeaseDuration; the other durations follow from it.
	Slots slot.Count
	Lease time.Duration
	// Seed is that of the first run; the next one has the next.
	Seed uint64
	// Results is a file to append each run to, as a line of JSON. Runs that it has are skipped, so that a campaign can
	// be continued. Default: none.
	Results string
	// FailFast ends the campaign with the first run that fails.
	FailFast bool
	// Dir gets the records of runs that fail. Default: a temporary folder, which is kept if there are any.
	Dir string
	// Progress is told what goes on.
	Progress io.Writer
	// Command starts a member: a program, and its arguments, that calls OperatorMain. Default: this program.
	Command []string
}

func (o *Options) validate() error {
	usual, others := Names()
	if len(o.Faults) == 0 {
		o.Faults = usual
	}
	for _, name := range o.Faults {
		if find(name) == nil {
			return fmt.Errorf("fault %q: there are %s", name, strings.Join(slices.Concat(usual, others), ", "))
		}
	}
	switch {
	case o.Runs < 1:
		return fmt.Errorf("runs %d: must be at least 1", o.Runs)
	case o.Objects < 10 || o.Objects > 100_000:
		return fmt.Errorf("objects %d: must be from 10 to 100000", o.Objects)
	case !(o.Rate > 0 && o.Rate <= 1000):
		return fmt.Errorf("rate %v: must be above 0 and at most 1000 per second", o.Rate)
	case o.Lease < 2*time.Second:
		return fmt.Errorf("lease %v: must be at least 2s, for on a busy machine shorter ones run out by themselves", o.Lease)
	}
	return o.Slots.Validate()
}

// planned are the runs of a campaign, in order.
func (o *Options) planned() []planned {
	out := make([]planned, o.Runs)
	for i := range out {
		out[i] = planned{Number: i + 1, Fault: o.Faults[i%len(o.Faults)], Seed: o.Seed + uint64(i)}
	}
	return out
}

// planned is a run to be done. Number counts from 1.
type planned struct {
	Number int    `json:"run"`
	Fault  string `json:"fault"`
	Seed   uint64 `json:"seed"`
}
