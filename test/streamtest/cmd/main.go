// Command streamtest searches the small worlds of package streamtest, and prints what it came to. docs/verification.md
// shows how to read that.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/rota-dev/rota/test/streamtest"
)

func main() {
	names := flag.String("scopes", "", "`names` of the scopes, by commas; all of them if empty")
	states := flag.Int("states", 4_000_000, "stop after this `number` of states")
	memory := flag.Int("memory", 5, "aim to use at most this much memory, in `GB`")
	replay := flag.String("replay", "", "replay the script in this `file`")
	flag.Parse()
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(int64(*memory) << 30)
	if err := run(*names, *states, *replay); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(names string, states int, replay string) error {
	if replay != "" {
		text, err := os.ReadFile(replay)
		if err != nil {
			return err
		}
		return streamtest.Replay(string(text), func(line string) { fmt.Println(line) })
	}
	for _, sc := range streamtest.Scopes {
		if names != "" && !slices.Contains(strings.Split(names, ","), sc.Name) {
			continue
		}
		fmt.Printf("%s: %s\n  %v\n", sc.Name, sc.About, sc)
		s := streamtest.NewSearch(sc)
		s.Run(states, 97)
		fmt.Printf("  %v\n", s)
		if s.Found != nil {
			fmt.Print(s.Script())
			_ = streamtest.Replay(s.Script(), func(line string) { fmt.Println("    " + line) })
			return fmt.Errorf("%s: %w", sc.Name, s.Found)
		}
	}
	return nil
}
