// Command dispatchbench measures dispatchers and prints tables. `make bench-dispatch` runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/bench/dispatch"
	"github.com/rota-dev/rota/test/process"
)

func main() {
	if os.Getenv(dispatch.EnvDispatcher) != "" {
		os.Exit(dispatch.DispatcherMain())
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dispatchbench:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := process.Interruptible()
	defer stop()
	o := dispatch.Options{Progress: os.Stderr}
	sizes := flag.String("objects", "1000,10000,100000", "numbers of objects, rising")
	flag.Float64Var(&o.Rate, "rate", 50, "changes per second while latencies are measured")
	flag.DurationVar(&o.Window, "window", 30*time.Second, "for how long they are measured, each time")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	for _, text := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || len(o.Sizes) > 0 && n <= o.Sizes[len(o.Sizes)-1] {
			return fmt.Errorf("objects %q: must be numbers above 0 that rise", *sizes)
		}
		o.Sizes = append(o.Sizes, n)
	}
	if o.Rate <= 0 || o.Window <= 0 {
		return fmt.Errorf("rate %v, window %v: must be above 0", o.Rate, o.Window)
	}
	report, err := dispatch.Run(ctx, o)
	if err == nil {
		fmt.Print(report.Markdown())
	}
	return err
}
