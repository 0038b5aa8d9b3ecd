// Command chaos has a rota work through faults on a real control plane and judges it. `make chaos` runs it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/chaos"
	"github.com/rota-dev/rota/test/rig/process"
)

func main() {
	if os.Getenv(rig.EnvOperator) != "" {
		os.Exit(rig.OperatorMain())
	}
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// shortObjects is the number of Websites in the form that takes about ten minutes and has each fault once.
const shortObjects = 500

func run(out io.Writer) error {
	ctx, stop := process.Interruptible()
	defer stop()
	o := chaos.Options{Progress: os.Stderr}
	flag.IntVar(&o.Runs, "runs", 200, "number of runs; they take the faults in turns")
	names := flag.String("faults", "", "faults to run, such as pause-1.01,held-write (default all that -list shows first)")
	flag.BoolVar(&o.Fence, "fence", true, "have the API servers refuse the writes of who is no member")
	flag.IntVar(&o.Objects, "objects", 2000, "number of Websites")
	flag.Float64Var(&o.Rate, "rate", 40, "updates, deletions and recreations per second, half of them of one Website")
	slots := flag.Int("slots", 64, "number of slots, a power of two")
	flag.DurationVar(&o.Lease, "lease-duration", 3*time.Second, "how long a silent member keeps its slots")
	flag.Uint64Var(&o.Seed, "seed", 1, "seed of the first run; the next one has the next")
	flag.StringVar(&o.Keep, "dir", "", "folder for the records of failing runs (default a temporary one)")
	flag.BoolVar(&o.FailFast, "fail-fast", false, "end with the first run that fails")
	output := flag.String("o", "text", "text or json")
	short := flag.Bool("short", false, fmt.Sprintf("each fault once, with %d Websites", shortObjects))
	list := flag.Bool("list", false, "list the faults")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	case *output != "text" && *output != "json":
		return fmt.Errorf("-o %s: must be text or json", *output)
	case *list:
		return listFaults(out)
	}
	o.Slots = slot.Count(*slots)
	if *short {
		usual, _ := chaos.Names()
		o.Runs, o.Objects = len(usual), shortObjects
	}
	if *names != "" {
		o.Faults = strings.Split(*names, ",")
	}
	report, err := chaos.Run(ctx, o)
	if report == nil {
		return err
	}
	if *output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = errors.Join(err, encoder.Encode(report))
	} else {
		err = errors.Join(err, report.WriteText(out))
	}
	if n := len(report.Failing); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d runs failed", n, report.Total.Runs))
	}
	return err
}

func listFaults(out io.Writer) error {
	usual, others := chaos.Names()
	for i, names := range [][]string{usual, others} {
		if i == 1 {
			_, _ = fmt.Fprintln(out, "\nOnly where they are named, since they show what is not promised:")
		}
		for _, name := range names {
			if _, err := fmt.Fprintf(out, "%-24s %s\n", name, chaos.Describe(name)); err != nil {
				return err
			}
		}
	}
	return nil
}
