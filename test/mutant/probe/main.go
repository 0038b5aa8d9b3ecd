// Command probe runs the simulation or the exhaustive check until it finds something, in one process, so that whoever
// starts it can choose the mutant (package active) by the environment. It prints what it found, if anything, in one
// line of JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/rota-dev/rota/test/explore"
	"github.com/rota-dev/rota/test/mutant/active"
	"github.com/rota-dev/rota/test/sim"
)

// found says what was found, and where.
type found struct {
	// Mutant is the one that was looked for.
	Mutant string
	// Where is a seed or a scope; Rule what was broken. Empty: nothing was found.
	Where, Rule, Message string
}

func main() {
	seeds := flag.Uint64("seeds", 0, "live through this `number` of seeds of the simulation")
	states := flag.Int("states", 0, "search every scope up to this `number` of states")
	flag.Parse()
	debug.SetGCPercent(400)
	f := simulate(*seeds)
	if f.Rule == "" {
		f = search(*states)
	}
	f.Mutant = active.Name()
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func simulate(seeds uint64) found {
	for seed := uint64(1); seed <= seeds; seed++ {
		if w := sim.RunChaos(seed, nil); w.Failed() {
			v := w.Violations()[0]
			return found{Where: fmt.Sprintf("seed %d", seed), Rule: v.Rule, Message: v.Message}
		}
	}
	return found{}
}

func search(states int) found {
	if states == 0 {
		return found{}
	}
	for _, scope := range explore.Scopes {
		s := explore.NewSearch(scope)
		s.Run(states)
		if s.Found == nil {
			nth := 1
			if !s.Fixpoint {
				nth = 97
			}
			s.Settle(nth)
		}
		if s.Found != nil {
			return found{Where: scope.Name, Rule: s.Found.Violation.Rule, Message: s.Found.Violation.Message}
		}
	}
	return found{}
}
