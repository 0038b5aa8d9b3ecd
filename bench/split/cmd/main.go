// Command splitbench measures what `rota split kcm` is good for, and prints tables.
// `make bench-split` runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/rota-dev/rota/bench/split"
	"github.com/rota-dev/rota/test/process"
)

func main() {
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
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
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
