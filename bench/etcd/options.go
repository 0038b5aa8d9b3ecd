package etcd

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Options are the options of Run.
type Options struct {
	// Rounds is how often each case is measured on each control plane, from 1.
	Rounds int
	// Length is how long a case is measured.
	Length time.Duration
	// Leases is the number of Leases. A case has each renewed once in its period.
	Leases int
	// Periods are the cases: the times between two renewals of a Lease. 0: none is renewed.
	Periods []time.Duration
	// Rate is how many ConfigMaps are created per second, and how many are updated; Events is how many Events are created.
	Rate, Events float64
	// Together measures both control planes at the same time, each under the whole load. So both have the same machine,
	// whatever else runs on it, and take its time from each other.
	Together bool
	// Fsync has the etcds wait for the disk.
	Fsync bool
	// Progress gets lines for people.
	Progress io.Writer
}

// say writes a line for people, who may have gone.
func (o *Options) say(format string, args ...any) {
	_, _ = fmt.Fprintf(o.Progress, format+"\n", args...)
}

func (o *Options) validate() error {
	switch {
	case o.Rounds < 1:
		return fmt.Errorf("rounds %d: must be at least 1", o.Rounds)
	case o.Length < time.Second:
		return fmt.Errorf("length %v: must be at least 1s", o.Length)
	case o.Leases < 1 || o.Leases > 100_000:
		return fmt.Errorf("leases %d: must be from 1 to 100000", o.Leases)
	case len(o.Periods) == 0:
		return errors.New("no periods: name at least one, such as 2s; 0s is without renewals")
	case !(o.Rate > 0 && o.Rate <= 1000):
		return fmt.Errorf("rate %v: must be above 0 and at most 1000 per second", o.Rate)
	case !(o.Events >= 0 && o.Events <= 1000):
		return fmt.Errorf("events %v: must be from 0 to 1000 per second", o.Events)
	}
	for _, p := range o.Periods {
		if p != 0 && p < 100*time.Millisecond {
			return fmt.Errorf("period %v: must be 0 or at least 100ms", p)
		}
	}
	return nil
}
