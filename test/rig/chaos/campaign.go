package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/rig/process"
)

// fleetRuns is after how many runs a new control plane is started: records and audit logs grow.
const fleetRuns = 40

// campaign is a series of runs.
type campaign struct {
	o      *Options
	dir    string
	fleets int
	fleet  *fleet // nil: none
	used   int    // runs of the fleet
}

// Run does the runs that are missing from the results, and reports on all of them. When it returns, all processes are
// gone. The error is about the campaign itself, or about runs that could not be judged; the report has what runs
// showed.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	var err error
	if o.Command, err = process.Command(o.Command); err != nil {
		return nil, err
	}
	results, err := openResults(&o)
	if err != nil {
		return nil, err
	}
	made := o.Dir == ""
	if made {
		if o.Dir, err = os.MkdirTemp("", "rota-chaos-"); err != nil {
			return nil, errors.Join(err, results.close())
		}
	}
	c := &campaign{o: &o, dir: o.Dir}
	err = c.run(ctx, results)
	err = errors.Join(err, c.closeFleet(), results.close())
	if made && os.Remove(o.Dir) != nil { // not empty
		_, _ = fmt.Fprintf(o.Progress, "What failing runs left is in %s\n", o.Dir)
	}
	return newReport(&o, results.all), err
}

func (c *campaign) run(ctx context.Context, results *results) error {
	for _, p := range c.o.planned() {
		if results.has(p) {
			continue
		}
		begun := time.Now()
		result := Result{planned: p, Fence: c.o.Fence}
		err := c.one(ctx, p, &result)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		result.Seconds = time.Since(begun).Round(100 * time.Millisecond).Seconds()
		if err != nil {
			result.Error = err.Error()
		}
		if err := results.add(result); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(c.o.Progress, result)
		if bad := result.Failures(); len(bad) > 0 {
			if err := c.keep(p); err != nil {
				return err
			}
			// The next run must not begin with what this one left.
			if err := c.closeFleet(); err != nil || c.o.FailFast {
				return err
			}
		}
	}
	return nil
}

// one does one run.
func (c *campaign) one(ctx context.Context, p planned, into *Result) error {
	f := find(p.Fault)
	if c.used >= fleetRuns {
		if err := c.closeFleet(); err != nil {
			return err
		}
	}
	if c.fleet == nil {
		c.fleets++
		var err error
		if c.fleet, err = openFleet(ctx, c.o, filepath.Join(c.dir, fmt.Sprintf("fleet-%d", c.fleets)), p.Seed); err != nil {
			return err
		}
		c.used = 0
	}
	c.used++
	if err := c.fleet.prepare(ctx, cmp.Or(f.delivery, sharding.Filter), f.fresh); err != nil {
		return err
	}
	verdict, err := c.fleet.do(ctx, f, p.Seed)
	into.Verdict = verdict
	return err
}

// keep saves the records of a failing run, and says where.
func (c *campaign) keep(p planned) error {
	if c.fleet == nil {
		return nil
	}
	folder := filepath.Join(c.dir, fmt.Sprintf("run-%d-%s", p.Number, p.Fault))
	if err := c.fleet.save(folder); err != nil {
		return fmt.Errorf("keep the records of run %d: %w", p.Number, err)
	}
	_, _ = fmt.Fprintf(c.o.Progress, "    its journals and logs are in %s\n", folder)
	return nil
}

// closeFleet ends the present control plane and all that runs on it.
func (c *campaign) closeFleet() error {
	if c.fleet == nil {
		return nil
	}
	s := c.fleet
	c.fleet = nil
	err := s.close()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// String is a line for people.
func (r Result) String() string {
	line := fmt.Sprintf("%3d  %-24s %5.1f s  seed %-6d", r.Number, r.Fault, r.Seconds, r.Seed)
	if v := r.Verdict; v != nil {
		line += fmt.Sprintf("  %5d operations, %d late writes (%d between), %d refused, %d overlaps (%d paused), "+
			"slowest %.1f s; duties: %d late writes (%d between), %d refused, %d overlaps (%d paused), longest gap %.1f s",
			v.Operations, v.LateWrites, v.LateWritesBetween, v.FenceRejections, v.Overlaps, v.PausedOverlaps,
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
