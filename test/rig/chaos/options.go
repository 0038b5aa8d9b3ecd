package chaos

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/test/rig"
)

// Options are the options of Run.
type Options struct {
	// Setup is the rig's; Name and Dir are set by Run.
	rig.Setup
	// Runs is the number of runs. They take the faults in turns.
	Runs int
	// Faults names the faults, see Names. Default: all that are usual.
	Faults []string
	// FailFast ends the campaign with the first run that fails.
	FailFast bool
	// Keep gets the records of runs that fail. Default: a temporary folder, which is kept if there are any.
	Keep string
	// Progress is told what goes on.
	Progress io.Writer
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
	o.Progress = cmp.Or[io.Writer](o.Progress, io.Discard)
	return o.Slots.Validate()
}
