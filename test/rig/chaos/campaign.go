package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/process"
)

// rigRuns is after how many runs a new control plane is started: records and audit logs grow.
const rigRuns = 40

// campaign is a series of runs.
type campaign struct {
	o    *Options
	rigs int
	rig  *rig.Rig // nil before the first run
	used int      // runs of the rig
}

// Run does the runs and reports on them. When it returns, all processes are gone. The error is about the campaign
// itself; the report has what runs showed, and which could not be judged.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Command, err = process.Command(o.Command); err != nil {
		return nil, err
	}
	made := o.Keep == ""
	if made {
		if o.Keep, err = os.MkdirTemp("", "rota-chaos-"); err != nil {
			return nil, err
		}
	}
	c := &campaign{o: &o}
	all, err := c.run(ctx)
	err = errors.Join(err, c.close())
	if made && os.Remove(o.Keep) != nil { // not empty
		_, _ = fmt.Fprintf(o.Progress, "What failing runs left is in %s\n", o.Keep)
	}
	return newReport(&o, all), err
}

func (c *campaign) run(ctx context.Context) (all []Result, err error) {
	for i := range c.o.Runs {
		begun := time.Now()
		r := Result{
			Number: i + 1, Fault: c.o.Faults[i%len(c.o.Faults)], Seed: c.o.Seed + uint64(i), Fence: c.o.Fence,
		}
		if err := c.one(ctx, &r); err != nil {
			if ctx.Err() != nil {
				return all, ctx.Err()
			}
			r.Error = err.Error()
		}
		r.Seconds = time.Since(begun).Round(100 * time.Millisecond).Seconds()
		all = append(all, r)
		_, _ = fmt.Fprintln(c.o.Progress, r)
		if len(r.Failures()) == 0 {
			continue
		}
		// The next run must not begin with what this one left.
		if err := errors.Join(c.keep(&r), c.close()); err != nil || c.o.FailFast {
			return all, err
		}
	}
	return all, nil
}

// one does one run.
func (c *campaign) one(ctx context.Context, r *Result) error {
	if c.used >= rigRuns {
		if err := c.close(); err != nil {
			return err
		}
	}
	if c.rig == nil {
		setup := c.o.Setup
		c.rigs++
		setup.Name, setup.Dir, setup.Seed = "rota-chaos", filepath.Join(c.o.Keep, fmt.Sprintf("rig-%d", c.rigs)), r.Seed
		var err error
		if c.rig, err = rig.New(ctx, setup); err != nil {
			return err
		}
		c.used = 0
	}
	c.used++
	var err error
	r.Verdict, err = c.rig.Run(ctx, find(r.Fault), r.Seed)
	return err
}

// keep saves the records of a failing run, and says where.
func (c *campaign) keep(r *Result) error {
	if c.rig == nil {
		return nil
	}
	folder := filepath.Join(c.o.Keep, fmt.Sprintf("run-%d-%s", r.Number, r.Fault))
	if err := c.rig.Save(folder); err != nil {
		return fmt.Errorf("keep the records of run %d: %w", r.Number, err)
	}
	_, _ = fmt.Fprintf(c.o.Progress, "    its journals and logs are in %s\n", folder)
	return nil
}

// close ends the present control plane and all that runs on it.
func (c *campaign) close() error {
	if c.rig == nil {
		return nil
	}
	r := c.rig
	c.rig = nil
	err := r.Close()
	return errors.Join(err, os.RemoveAll(r.Dir))
}
