// Command etcdbench measures the API server with one etcd, and with etcds of their own for Leases and Events.
// `make check WHAT=etcd` runs it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/bench/etcd"
	"github.com/rota-dev/rota/test/process"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "etcdbench:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := process.Interruptible()
	defer stop()
	o := etcd.Options{Progress: os.Stderr}
	flag.IntVar(&o.Rounds, "rounds", 5, "how often each case is measured with one etcd, and with three")
	flag.DurationVar(&o.Length, "length", 20*time.Second, "how long a case is measured")
	flag.IntVar(&o.Leases, "leases", 1000, "number of Leases")
	flag.Float64Var(&o.Rate, "rate", 30, "ConfigMaps created, and updated, per second")
	flag.Float64Var(&o.Events, "events", 30, "Events created per second")
	flag.BoolVar(&o.Fsync, "fsync", true, "have etcd wait for the disk")
	flag.BoolVar(&o.Together, "together", false, "measure both at the same time, for a machine that others use, too")
	periods := flag.String("periods", "0s,10s,2s", "cases: times between two renewals of each Lease; 0s is none")
	output := flag.String("output", "", "file for the figures of every round, as JSON")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	for text := range strings.SplitSeq(*periods, ",") {
		period, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("-periods %s: %w", *periods, err)
		}
		o.Periods = append(o.Periods, period)
	}
	report, err := etcd.Run(ctx, o)
	if report == nil {
		return err
	}
	fmt.Print(report.Markdown())
	if *output == "" {
		return err
	}
	text, encodeErr := json.MarshalIndent(report, "", "  ")
	return errors.Join(err, encodeErr, os.WriteFile(*output, text, 0o644))
}
