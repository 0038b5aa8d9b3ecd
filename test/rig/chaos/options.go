package chaos

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
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

// Result is what one run showed. Number counts from 1.
type Result struct {
	Number  int            `json:"run"`
	Fault   string         `json:"fault"`
	Seed    uint64         `json:"seed"`
	Fence   bool           `json:"fence"`
	Seconds float64        `json:"seconds"`
	Verdict *judge.Verdict `json:"verdict,omitempty"`
	// Error says why the run could not be judged.
	Error string `json:"error,omitempty"`
}

// Failures says in words what is wrong.
func (r Result) Failures() []string {
	if r.Error != "" || r.Verdict == nil {
		return []string{"not judged: " + r.Error}
	}
	f := find(r.Fault)
	return r.Verdict.Failures(!r.Fence && f.Late || f.Limit)
}

// String is a line for people.
func (r Result) String() string {
	line := fmt.Sprintf("%3d  %-24s %5.1f s  seed %-6d", r.Number, r.Fault, r.Seconds, r.Seed)
	if v := r.Verdict; v != nil {
		line += fmt.Sprintf("  %5d operations, %d late writes (%d between), %d refused, %d overlaps (%d paused), "+
			"slowest %.1f s; duties: %d late writes (%d between), %d refused, %d overlaps (%d paused), longest gap %.1f s",
			v.Operations, v.LateWrites, v.LateWritesBetween, v.Refused, v.Overlaps, v.PausedOverlaps,
			v.SlowestMillis/1000, v.Duties.LateWrites, v.Duties.LateWritesBetween, v.Duties.Refused, v.Duties.Overlaps,
			v.Duties.PausedOverlaps, v.Duties.LongestGapMillis/1000)
	}
	lines := []string{line}
	if bad := r.Failures(); len(bad) > 0 {
		lines[0] += "  FAIL: " + strings.Join(bad, "; ")
		if r.Verdict != nil {
			lines = append(append(lines, r.Verdict.Leaks...), r.Verdict.Examples...)
		}
	}
	return strings.Join(lines, "\n    ")
}
