// Command takeover measures how soon the objects of a member that is gone are worked on, and how soon a new member
// works, and prints a table.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/bench/takeover"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/process"
)

func main() {
	if os.Getenv(takeover.EnvMember) != "" {
		os.Exit(takeover.MemberMain())
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "takeover:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := process.Interruptible()
	defer stop()
	o := takeover.Options{Progress: os.Stderr}
	flag.IntVar(&o.Objects, "objects", 49_000, "number of Secrets, and of ConfigMaps")
	flag.Float64Var(&o.Traffic, "traffic", 5,
		"how many of each are written per second; 0: none, so that only bookmarks show that watches are up to date")
	flag.StringVar(&o.Profile, "profile", "", "address at which the member that joins serves net/http/pprof")
	flag.StringVar(&o.Kubeconfig, "cluster", "", "kubeconfig of a control plane that runs (bin/rota-kube up), "+
		"to use it and the objects that an earlier run has made there")
	trace := flag.Bool("trace", false, "print what members report")
	deliveries := flag.String("deliveries", "Filter,SlotLabel,ShardSelector", "what to measure")
	flag.Parse()
	if *trace {
		o.Trace = os.Stderr
	}
	for _, name := range strings.Split(*deliveries, ",") {
		kind, err := sharding.ParseMode(name)
		if err != nil {
			return err
		}
		o.Deliveries = append(o.Deliveries, kind)
	}
	results, err := takeover.Run(ctx, o)
	fmt.Printf("%d Secrets and %d ConfigMaps, %g writes of each per second. Seconds.\n\n", o.Objects, o.Objects, o.Traffic)
	fmt.Println("| | list of both | join | restarted container: first slots open | all | crash: first slots open | all |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
	s := time.Duration.Seconds
	for _, r := range results {
		fmt.Printf("| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
			r.Delivery, s(r.List), s(r.Join), s(r.Restart), s(r.RestartOpen), s(r.Crash), s(r.CrashOpen))
	}
	return err
}
