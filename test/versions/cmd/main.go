// Command versions runs the tests of ctrlrt, the root package and internal/delivery with each pair of
// controller-runtime and client-go that Rota works with, and the demo with some. It prints a table for
// docs/versions.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/test/versions"
)

// tested are the packages that depend most on the versions.
var tested = []string{"./ctrlrt", ".", "./internal/delivery/..."}

const module = "github.com/rota-dev/rota"

type options struct {
	pairs, demos string
	short, local bool
}

func main() {
	var o options
	flag.StringVar(&o.pairs, "pairs", "", "only versions of controller-runtime that match this `regexp`")
	flag.StringVar(&o.demos, "demo", `^v0\.23\.[01]$`,
		"run the demo with versions of controller-runtime that match this `regexp`; none: with none")
	flag.BoolVar(&o.short, "short", false, "leave out the tests that -short leaves out")
	flag.BoolVar(&o.local, "local", false, "build everything with the Go that is installed, also the lowest pair")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// row is what was found with a pair.
type row struct {
	versions.Pair

	results map[string]*versions.Result
	demo    string
}

func run(ctx context.Context, o options) error {
	pairs, err := versions.Pairs(ctx, ".")
	if err != nil {
		return err
	}
	chosen, err := regexp.Compile(o.pairs)
	if err != nil {
		return fmt.Errorf("-pairs: %w", err)
	}
	demos, err := regexp.Compile(o.demos)
	if err != nil {
		return fmt.Errorf("-demo: %w", err)
	}
	pairs = slices.DeleteFunc(pairs, func(p versions.Pair) bool { return !chosen.MatchString(p.ControllerRuntime) })
	if len(pairs) == 0 {
		return fmt.Errorf("-pairs %s matches no version of controller-runtime", o.pairs)
	}
	var rows []row
	var failed []error
	for _, p := range pairs {
		if o.local {
			p.Toolchain = ""
		}
		r, err := try(ctx, p, o, demos.MatchString(p.ControllerRuntime))
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		rows = append(rows, r)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p, err))
		}
	}
	show(rows)
	return errors.Join(failed...)
}

func try(ctx context.Context, p versions.Pair, o options, demo bool) (row, error) {
	r := row{Pair: p, demo: "not run"}
	say := func(what string) { fmt.Fprintf(os.Stderr, "%s %s: %s\n", time.Now().Format(time.TimeOnly), p, what) }
	say("go vet ./...")
	if err := p.Vet(ctx, "."); err != nil {
		return r, err
	}
	var flags []string
	if o.short {
		flags = []string{"-short"}
	}
	say("go test " + strings.Join(slices.Concat(flags, tested), " "))
	var err error
	if r.results, err = p.Test(ctx, ".", tested, flags); err != nil {
		return r, err
	}
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(r.results)) {
		if result := r.results[name]; result.Failed > 0 {
			failed = append(failed, fmt.Errorf("%s: %d failed:\n%s", name, result.Failed, strings.Join(result.Said, "")))
		}
	}
	if !demo || ctx.Err() != nil {
		return r, errors.Join(failed...)
	}
	say("the demo with 300 objects")
	report, took, err := p.Demo(ctx, ".", "--objects", "300", "--seed", "1")
	if err != nil {
		r.demo = "failed"
		return r, errors.Join(append(failed, err)...)
	}
	r.demo = fmt.Sprintf("%d reconciles, %d overlaps, %d objects without owner, %d deletions missed, %.0f s",
		report.Reconciled, report.Overlaps, report.UnownedAtEnd, report.DeletionsMissed, took.Seconds())
	return r, errors.Join(failed...)
}

// show prints the table, and which tests were skipped only with some pairs.
func show(rows []row) {
	fmt.Println("| controller-runtime | client-go | built with Go | ctrlrt | root | internal/delivery | demo |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- |")
	for _, r := range rows {
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s |\n", r.ControllerRuntime, r.ClientGo,
			cmp.Or(strings.TrimPrefix(r.Toolchain, "go"), "that installed"), cell(r.results, module+"/ctrlrt"),
			cell(r.results, module), cell(r.results, module+"/internal/delivery"), r.demo)
	}
	fmt.Println()
	for _, r := range rows {
		for _, name := range slices.Sorted(maps.Keys(r.results)) {
			for _, test := range slices.Sorted(maps.Keys(r.results[name].Skipped)) {
				if everywhere(rows, name, test) {
					continue
				}
				fmt.Printf("- %s: %s %s is skipped: %s\n", r.ControllerRuntime, name, test, r.results[name].Skipped[test])
			}
		}
	}
}

// everywhere reports whether a test is skipped with every pair.
func everywhere(rows []row, name, test string) bool {
	return !slices.ContainsFunc(rows, func(r row) bool {
		result := r.results[name]
		if result == nil {
			return false
		}
		_, skipped := result.Skipped[test]
		return !skipped
	})
}

// cell sums up the packages whose names begin with a prefix; the root package is alone.
func cell(results map[string]*versions.Result, prefix string) string {
	var passed, failed, skipped int
	var took time.Duration
	for name, r := range results {
		if name == prefix || prefix != module && strings.HasPrefix(name, prefix+"/") {
			passed, failed, skipped, took = passed+r.Passed, failed+r.Failed, skipped+len(r.Skipped), took+r.Took
		}
	}
	if passed+failed+skipped == 0 {
		return "not run"
	}
	out := fmt.Sprintf("%d passed, %d skipped, %.0f s", passed, skipped, took.Seconds())
	if failed > 0 {
		out = fmt.Sprintf("**%d failed**, ", failed) + out
	}
	return out
}
