// Command splitbench measures what `rota split kcm` is good for, or with --operator what duties are, and prints tables.
// `make bench-split` runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/rota-dev/rota/bench/neighbor"
	"github.com/rota-dev/rota/bench/split"
	"github.com/rota-dev/rota/test/process"
)

func main() {
	if os.Getenv(neighbor.EnvOperator) != "" {
		os.Exit(neighbor.OperatorMain())
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "splitbench:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := process.Interruptible()
	defer stop()
	o := split.Options{Progress: os.Stderr}
	flag.IntVar(&o.ConfigMaps, "configmaps", 18_000, "ConfigMaps that become garbage")
	flag.IntVar(&o.Pods, "pods", 2_000, "Pods that become garbage")
	flag.IntVar(&o.Rounds, "rounds", 3, "how often each case is measured")
	flag.DurationVar(&o.Quiet, "quiet", 15*time.Second, "length of the load without a flood")
	flag.DurationVar(&o.Flood, "flood", 40*time.Second,
		"length of the load with the flood, unless the scenario waits until all is collected")
	flag.Float64Var(&o.Rate, "rate", 2, "Deployments created or scaled per second")
	flag.IntVar(&o.Replicas, "replicas", 2, "Pods that each of them adds")
	flag.Float64Var(&o.Calls, "calls", 5, "gets, lists and creates per second, of each")
	flag.StringVar(&o.Manager, "manager-cpus", "0",
		"processors of all kube-controller-managers, as for taskset; empty: any")
	flag.StringVar(&o.Servers, "server-cpus", "1", "processors of etcd and the API server, as for taskset; empty: any")
	only := flag.String("run", "", "regular expression of the cases to measure, such as ^default/ (default all)")
	flag.StringVar(&o.Profiles, "profiles", "", "folder for CPU profiles of the kube-controller-managers")
	flag.StringVar(&o.Output, "output", "bin/bench-split", "files to write, without .json and .md")
	operator := flag.Bool("operator", false,
		"measure an operator's quiet controller beside a flooded one instead, with leader election and as duties; "+
			"only --rounds, --quiet, --flood, --output and --operator-… apply")
	changes := flag.Float64("operator-changes", 100, "changes per second of the flooded controller's objects")
	effort := flag.Int("operator-effort", 1, "processor time of a reconcile of the flooded controller, times some 10 ms")
	apart := flag.Bool("operator-apart", false, "give the replica that is flooded a processor of its own, with taskset")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	if *operator {
		return runOperator(ctx, o, *changes, *effort, *apart)
	}
	if *only != "" {
		var err error
		if o.Only, err = regexp.Compile(*only); err != nil {
			return err
		}
	}
	report, err := split.Run(ctx, o)
	if err == nil {
		fmt.Print(report.Markdown())
	}
	return err
}

// runOperator measures two controllers of an operator.
func runOperator(ctx context.Context, o split.Options, changes float64, effort int, apart bool) error {
	command, err := process.Command(nil)
	if err != nil {
		return err
	}
	report, err := neighbor.Run(ctx, neighbor.Options{
		Rounds: o.Rounds, Alone: o.Quiet, Flood: o.Flood, Changes: 4, FloodChanges: changes, Effort: effort, Apart: apart,
		Output: o.Output + "-operator", Command: command, Progress: o.Progress,
	})
	if err == nil {
		fmt.Print(report.Markdown())
	}
	return err
}
