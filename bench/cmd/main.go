// Command cmd measures ways to run an operator on replicas, beside each other. `make bench` runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/bench"
	"github.com/rota-dev/rota/test/rig/process"
)

func main() {
	if os.Getenv(bench.EnvOperator) != "" {
		os.Exit(bench.OperatorMain())
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := process.Interruptible()
	defer stop()
	o := bench.Options{Progress: os.Stderr}
	flag.IntVar(&o.Objects, "objects", 10_000, "number of objects, children included")
	replicas := flag.String("replicas", "3", "numbers of replicas")
	strategies := flag.String("strategies", "leader,leader-warm,modulo,drain-label,filter,slot-label",
		"what to compare")
	only := flag.String("scenarios", "", "what to measure: churn,join,leave,roll,restart,crash (these are the "+
		"default),rest")
	flag.IntVar(&o.Rounds, "rounds", 1, "how often each strategy lives")
	flag.Float64Var(&o.Rate, "rate", 20, "changes of Websites per second")
	flag.DurationVar(&o.Window, "window", 15*time.Second, "length of the steady load")
	flag.DurationVar(&o.Quiet, "quiet", 2*time.Second, "how long nothing must happen between scenarios")
	page := flag.String("page", "docs/benchmarks.md", "page to write; its picture is beside it, in an .svg, and the "+
		"results are in a .json")
	render := flag.Bool("render", false, "write the page from the results that there are, and measure nothing")
	ranges := flag.String("ranges", "", "file of ranges that the figures are held to")
	flag.Parse()
	base := strings.TrimSuffix(*page, ".md")
	o.Output = base + ".json"
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	var err error
	if o.Strategies, err = bench.ParseStrategies(*strategies); err != nil {
		return err
	}
	for _, text := range strings.Split(*replicas, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("replicas %q: %w", *replicas, err)
		}
		o.Replicas = append(o.Replicas, n)
	}
	if *only != "" {
		o.Scenarios = strings.Split(*only, ",")
	}
	var bounds []bench.Range
	if *ranges != "" {
		if bounds, err = bench.LoadRanges(*ranges); err != nil {
			return err
		}
	}
	var report *bench.Report
	if *render {
		report, err = bench.Load(o.Output)
	} else {
		report, err = bench.Run(ctx, o)
	}
	if err != nil {
		return err
	}
	if err := report.Write(base); err != nil {
		return err
	}
	return report.Hold(bounds, o, func(text string) { fmt.Println(text) })
}
