// Command explore searches the small worlds of package explore, and prints what it came to. docs/verification.md shows
// how to read that.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rota-dev/rota/test/explore"
)

func main() {
	names := flag.String("scopes", "", "`names` of the scopes, by commas; all of them if empty")
	states := flag.Int("states", 3_000_000, "stop after this `number` of states")
	memory := flag.Int("memory", 5, "aim to use at most this much memory, in `GB`")
	save := flag.String("save", "", "write what was found to this `file`, for -replay")
	replay := flag.String("replay", "", "replay the script in this `file`")
	flag.Parse()
	// Most of what is held lives as long as the search.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(int64(*memory) << 30)
	if err := run(*names, *states, *save, *replay); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(names string, states int, save, replay string) error {
	if replay != "" {
		text, err := os.ReadFile(replay)
		if err != nil {
			return err
		}
		v, err := explore.Replay(string(text), func(line string) { fmt.Println(line) })
		if err == nil && v != nil {
			err = fmt.Errorf("%s: %s", v.Rule, v.Message)
		}
		return err
	}
	for _, s := range explore.Scopes {
		if names != "" && !slices.Contains(strings.Split(names, ","), s.Name) {
			continue
		}
		if err := search(s, states, save); err != nil {
			return err
		}
	}
	return nil
}

// search prints what a scope comes to.
func search(s explore.Scope, states int, save string) error {
	fmt.Printf("%s: %s\n  %v\n", s.Name, s.About, s)
	r := explore.NewSearch(s)
	r.Run(states)
	fmt.Printf("  %v\n  %s\n", r, r.Kinds())
	if r.Found == nil {
		nth := 1
		if !r.Fixpoint {
			nth = 97
		}
		fmt.Printf("  %v\n", r.Settle(nth))
	}
	if r.Found == nil {
		return nil
	}
	script := r.Script()
	if _, err := explore.Replay(script, func(line string) { fmt.Println("    " + line) }); err != nil {
		return err
	}
	if save != "" {
		if err := os.WriteFile(save, []byte(script), 0o600); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %s: %s", s.Name, r.Found.Violation.Rule, r.Found.Violation.Message)
}
