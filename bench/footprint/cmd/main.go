// Command footprint measures what replicas of an operator cost and writes docs/memory.md. `make footprint` runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/bench/footprint"
	"github.com/rota-dev/rota/test/process"
)

func main() {
	if os.Getenv(footprint.EnvOperator) != "" {
		os.Exit(footprint.OperatorMain())
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "footprint:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := process.Interruptible()
	defer stop()
	o := footprint.Options{Progress: os.Stderr}
	flag.IntVar(&o.Objects, "objects", 20_000, "number of Websites")
	flag.IntVar(&o.JoinObjects, "join-objects", 16_000, "number of Websites when a member joins")
	members := flag.String("members", "1,3,5", "numbers of members")
	deliveries := flag.String("deliveries", "filter,slot-label,shard-selector", "deliveries of Rota")
	flag.Float64Var(&o.Rate, "rate", 50, "changes of Websites per second in the steady load")
	flag.DurationVar(&o.Window, "window", 20*time.Second, "length of the steady load")
	flag.IntVar(&o.Creates, "creates", 600, "Websites created for each form to measure latencies")
	flag.Float64Var(&o.CreateRate, "create-rate", 10, "how many of them per second")
	only := flag.String("run", "",
		"regular expression of the cases to measure, such as ^steady/filter/ (default all); -list shows them")
	list := flag.Bool("list", false, "list the cases and measure nothing")
	flag.BoolVar(&o.Resume, "resume", false, "leave out cases of which there is a result")
	flag.StringVar(&o.Output, "output", "docs/memory.md", "page to write; the results are beside it, in a .json")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	for _, name := range split(*deliveries) {
		form, err := footprint.ParseForm(name)
		if err != nil {
			return err
		}
		o.Deliveries = append(o.Deliveries, form)
	}
	for _, text := range split(*members) {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("members %q: %w", *members, err)
		}
		o.Members = append(o.Members, n)
	}
	if *only != "" {
		var err error
		if o.Only, err = regexp.Compile(*only); err != nil {
			return err
		}
	}
	if *list {
		for _, c := range o.Cases() {
			fmt.Println(c)
		}
		return nil
	}
	_, err := footprint.Run(ctx, o)
	return err
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
