// Command simcmd lives through seeds of package sim, and prints what the lives were about. docs/verification.md shows how to read
// that.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/rota-dev/rota/internal/sim"
	"github.com/rota-dev/rota/member"
)

func main() {
	seeds := flag.Int("seeds", 50_000, "live through this `number` of seeds")
	first := flag.Uint64("first", 1, "begin with this `seed`")
	without := flag.Int("without", -1, "leave a clause of the protocol out: the `number` of its bit in member.Clause")
	all := flag.Bool("all", true, "fail where something never happened, or two kinds of faults never met")
	flag.Parse()
	// Most of what a life allocates dies at once.
	debug.SetGCPercent(800)
	clause := member.Clause(0)
	if *without >= 0 {
		clause = 1 << *without
	}
	if err := survey(*first, *seeds, clause, *all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// survey lives through seeds and prints what came of it.
func survey(first uint64, seeds int, without member.Clause, all bool) error {
	begun, told, failed := time.Now(), time.Now(), 0
	s := sim.Seeds(first, seeds, without, func(s *sim.Survey) {
		for ; failed < len(s.Failures); failed++ {
			fmt.Println(s.Failures[failed])
		}
		if time.Since(told) > time.Minute {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "%d of %d lives in %v\n", s.Lives, seeds, time.Since(begun).Round(time.Second))
		}
	})
	s.Print(os.Stdout)
	took := time.Since(begun)
	fmt.Printf("\n%v, %.1f lives per second\n", took.Round(time.Second), float64(s.Lives)/took.Seconds())
	if len(s.Failures) > 0 {
		return fmt.Errorf("%d lives failed: look at one with -seed, and keep it in internal/sim/testdata/graveyard.txt", len(s.Failures))
	}
	if missing := append(s.Counts.Zero(), s.Coverage.Missing()...); all && len(missing) > 0 {
		for _, what := range missing {
			fmt.Println("never:", what)
		}
		return errors.New("the seeds say nothing about what never was")
	}
	return nil
}
