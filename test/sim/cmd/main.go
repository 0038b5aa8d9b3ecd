// Command sim lives through seeds of package sim, and prints what the lives were about; or it writes a trace of one.
// docs/verification.md shows how to read both.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/rota-dev/rota/test/sim"
)

func main() {
	seeds := flag.Int("seeds", 50_000, "live through this `number` of seeds")
	first := flag.Uint64("first", 1, "begin with this `seed`")
	limit := flag.Duration("for", 24*time.Hour, "stop after this `time`, too")
	all := flag.Bool("all", true, "fail where something never happened, or two kinds of faults never met")
	seed := flag.Uint64("seed", 0, "live through this `seed` only, and print what happened")
	members := flag.String("crowd", "", "print what rotas of these `numbers` of members cost, such as 10,100,1000")
	flag.Parse()
	// Most of what a life allocates dies at once.
	debug.SetGCPercent(800)
	var err error
	switch {
	case *members != "":
		err = crowds(*members)
	case *seed != 0:
		err = failure(*seed, sim.RunChaos(*seed, func(line string) { fmt.Println(line) }))
	default:
		err = survey(*first, *seeds, *limit, *all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func failure(seed uint64, w *sim.World) error {
	if !w.Failed() {
		return nil
	}
	return errors.New(sim.Failure{Seed: seed, At: w.Now(), Violation: w.Violations()[0]}.String())
}

// survey lives through seeds and prints what came of it.
func survey(first uint64, seeds int, limit time.Duration, all bool) error {
	begun, told, failed := time.Now(), time.Now(), 0
	s := sim.Seeds(first, seeds, func(s *sim.Survey) bool {
		for ; failed < len(s.Failures); failed++ {
			fmt.Println(s.Failures[failed])
		}
		if time.Since(told) > time.Minute {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "%d of %d lives in %v\n", s.Lives, seeds, time.Since(begun).Round(time.Second))
		}
		return time.Since(begun) < limit
	})
	s.Print(os.Stdout)
	took := time.Since(begun)
	fmt.Printf("\n%v, %.1f lives per second\n", took.Round(time.Second), float64(s.Lives)/took.Seconds())
	if len(s.Failures) > 0 {
		return fmt.Errorf("%d lives failed: look at one with -seed, and keep it in test/sim/testdata/graveyard.txt",
			len(s.Failures))
	}
	if missing := append(s.Counts.Zero(), s.Coverage.Missing()...); all && len(missing) > 0 {
		for _, what := range missing {
			fmt.Println("never:", what)
		}
		return errors.New("the seeds say nothing about what never was")
	}
	return nil
}
