// Command mutant builds bugs into the product, one at a time, and shows which of the project's checks find them:
//
//	scripts      the scripts of package member
//	lives        package streamtest: streams and a model of an API server, at random
//	simulation   package sim, up to a number of seeds
//	exhaustive   package explore, every scope up to a number of states
//	conformance  the tests of the package that the bug is in, in memory
//	differential what the product stands in for, such as a stock manager's client, gets the same calls
//	chaos        faults on a real API server, a few of package chaos; only with -chaos
//
// Each check must find nothing without a bug. A mutant that nothing finds is an error, and so is one that only crashes
// a check: a panic says nothing about what the check looks for. docs/verification.md shows how to read the table.
//
// With arguments it runs a command instead, with one mutant in what that builds:
//
//	mutant -mutants NewcomersWait go run ./test/sim/cmd -seed 10
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/test/mutant"
	"github.com/rota-dev/rota/test/mutant/active"
)

// options are the flags.
type options struct {
	seeds, states int
	limit         time.Duration
	all, chaos    bool
	mutants       string
	tools         string
	output        string
}

func main() {
	var o options
	flag.IntVar(&o.seeds, "seeds", 300, "give up the simulation after this `number` of seeds")
	flag.IntVar(&o.states, "states", 100_000, "give up each scope of the exhaustive check after this `number` of states")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "give up each run of a check after this `time`")
	flag.BoolVar(&o.all, "all", false, "run all checks for each mutant, not only until one finds it")
	flag.BoolVar(&o.chaos, "chaos", false, "run faults on a real API server, too, for up to two minutes per mutant")
	flag.StringVar(&o.mutants, "mutants", "", "`names` of mutants, by commas; all of them if empty")
	flag.StringVar(&o.tools, "tools", "", "`names` of checks, by commas; all of them if empty")
	flag.StringVar(&o.output, "o", "text", "`form` of the output: text, json or markdown")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "mutant [flags] [command with its arguments, to be run with the one mutant of -mutants]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, flag.Args()); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context, o options, command []string) error {
	show, ok := forms[o.output]
	if !ok {
		return fmt.Errorf("no form %q of output: text, json or markdown", o.output)
	}
	every := checks()
	if !o.chaos {
		every = slices.DeleteFunc(every, func(t tool) bool { return t.name == chaos })
	}
	tools, err := chosen(every, o.tools, func(t tool) string { return t.name })
	if err != nil {
		return err
	}
	mutants, err := mutant.All()
	if err != nil {
		return err
	}
	mutants, err = chosen(mutants, o.mutants, func(m mutant.Mutant) string { return m.Name })
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rota-mutants-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root, err := mutant.Root(".")
	if err != nil {
		return err
	}
	overlay, err := mutant.Write(dir, root)
	if err != nil {
		return err
	}
	if len(command) > 0 {
		return with(ctx, mutants, overlay, command)
	}
	b := bench{options: o, dir: dir, overlay: overlay}
	if err := b.build(ctx, tools); err != nil {
		return err
	}
	for _, t := range tools {
		r := b.try(ctx, t, mutant.Mutant{})
		fmt.Fprintf(os.Stderr, "without a mutant: %s %s\n", t.name, r)
		if r.Verdict != Survived {
			return fmt.Errorf("%s without a mutant: %s: it says nothing about mutants before that is mended", t.name, r)
		}
	}
	rows := b.matrix(ctx, tools, mutants)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	fmt.Print(show(tools, rows))
	var survivors []string
	for _, r := range rows {
		if !r.caught() {
			survivors = append(survivors, r.Name)
		}
	}
	if len(survivors) > 0 {
		return fmt.Errorf("%d of %d mutants survive: %s", len(survivors), len(rows), strings.Join(survivors, ", "))
	}
	return nil
}

// with runs a command with one mutant: what it builds with go has that.
func with(ctx context.Context, mutants []mutant.Mutant, overlay string, command []string) error {
	if len(mutants) != 1 {
		return errors.New("-mutants must name the one that the command is to be run with")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	flags := os.Getenv("GOFLAGS") + " -overlay=" + overlay
	cmd.Env = append(os.Environ(), active.Variable+"="+mutants[0].Name, "GOFLAGS="+flags)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// chosen returns those of the names, in their order; all if there are none.
func chosen[T any](of []T, names string, name func(T) string) ([]T, error) {
	if names == "" {
		return of, nil
	}
	var out []T
	for n := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(of, func(t T) bool { return name(t) == n })
		if i < 0 {
			return nil, fmt.Errorf("there is no %q", n)
		}
		out = append(out, of[i])
	}
	return out, nil
}
