package sim_test

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/sim"
)

// TestChaos lives through some seeds; SIM_SEEDS=<n> and make check WHAT=sim through more. SIM_SEED=<n> repeats one, with
// a trace.
func TestChaos(t *testing.T) {
	if text := os.Getenv("SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		repeat(t, seed)
		return
	}
	seeds := 120
	if testing.Short() {
		seeds = 40
	}
	if text := os.Getenv("SIM_SEEDS"); text != "" {
		var err error
		if seeds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	total := sim.Seeds(1, seeds, nil)
	for _, f := range total.Failures {
		t.Errorf("%v\n\trepeat: SIM_SEED=%d go test -run TestChaos ./test/sim", f, f.Seed)
	}
	var b strings.Builder
	total.Print(&b)
	t.Log(b.String())
	if testing.Short() {
		return
	}
	for _, what := range total.Counts.Zero() {
		if what == "Excused" {
			continue // few lives have such clocks: TestClocksExcuse and TestFastClocksShortenTheFenceWait have them
		}
		t.Errorf("%s: never in all seeds", what)
	}
	for rule, n := range total.Coverage.Rules {
		if n == 0 && sim.Situations[rule] != "" {
			t.Errorf("R%d: no %s", rule, sim.Situations[rule])
		}
	}
}

//go:embed testdata/graveyard.txt
var graveyard string

// TestGraveyard: without the bugs that the seeds are kept for, their lives go well. Package mutant lives through
// some of them with the bug.
func TestGraveyard(t *testing.T) {
	for line := range strings.Lines(graveyard) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		seed, err := strconv.ParseUint(words[0], 10, 64)
		require.NoError(t, err)
		if w := sim.RunChaos(seed, nil); w.Failed() {
			t.Errorf("seed %d (%s): %v", seed, strings.Join(words[1:], " "), w.Violations()[0])
		}
	}
}

// A seed repeats exactly, or no failure could be looked at.
func TestSeedsRepeat(t *testing.T) {
	lives := map[string]bool{}
	for range 2 {
		h := fnv.New64a()
		sim.RunChaos(7, func(line string) { _, _ = h.Write([]byte(line)) })
		lives[fmt.Sprint(h.Sum64())] = true
	}
	if len(lives) != 1 {
		t.Error("the same seed made two different lives")
	}
}

func repeat(t *testing.T, seed uint64) {
	t.Helper()
	var lines []string
	w := sim.RunChaos(seed, func(line string) { lines = append(lines, line) })
	limit := 400
	if os.Getenv("SIM_ALL") != "" {
		limit = len(lines)
	}
	t.Logf("the last lines of %d:\n%s", len(lines), strings.Join(lines[max(0, len(lines)-limit):], "\n"))
	t.Log(w.Counts)
	for _, v := range w.Violations() {
		t.Errorf("seed %d: %v", seed, v)
	}
}
