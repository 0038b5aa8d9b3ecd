package sim_test

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rota-dev/rota/internal/sim"
	"github.com/rota-dev/rota/member"
)

// TestChaos lives through many seeds. SIM_SEED=<n> repeats one, with a trace; SIM_SEEDS=<n> sets how many.
func TestChaos(t *testing.T) {
	if text := os.Getenv("SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		repeat(t, seed)
		return
	}
	seeds, first := 1000, 1
	if testing.Short() {
		seeds = 100
	}
	if text := os.Getenv("SIM_SEEDS"); text != "" {
		seeds, _ = strconv.Atoi(text)
	}
	if text := os.Getenv("SIM_FIRST"); text != "" {
		first, _ = strconv.Atoi(text)
	}
	var (
		mu     sync.Mutex
		total  sim.Counts
		failed int
		next   atomic.Int64
		group  sync.WaitGroup
	)
	next.Store(int64(first))
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for seed := next.Add(1) - 1; seed < int64(first+seeds); seed = next.Add(1) - 1 {
				w := sim.RunChaos(uint64(seed), without(), nil)
				mu.Lock()
				add(&total, w.Counts)
				if w.Failed() {
					failed++
					t.Errorf("seed %d after %v: %v\n\trepeat: SIM_SEED=%d go test -run TestChaos ./internal/sim", seed, w.Now(), w.Violations()[0], seed)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	t.Logf("%d seeds, %d failed:%s", seeds, failed, list(total))
	if seeds >= 100 {
		complete(t, total)
	}
}

//go:embed testdata/graveyard.txt
var graveyard string

func TestGraveyard(t *testing.T) {
	for line := range strings.Lines(graveyard) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		seed, err := strconv.ParseUint(words[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if w := sim.RunChaos(seed, 0, nil); w.Failed() {
			t.Errorf("seed %d (%s): %v", seed, strings.Join(words[1:], " "), w.Violations()[0])
		}
	}
}

// A seed repeats exactly, or no failure could be looked at.
func TestSeedsRepeat(t *testing.T) {
	lives := map[string]bool{}
	for range 2 {
		h := fnv.New64a()
		sim.RunChaos(7, 0, func(line string) { _, _ = h.Write([]byte(line)) })
		lives[fmt.Sprint(h.Sum64())] = true
	}
	if len(lives) != 1 {
		t.Error("the same seed made two different lives")
	}
}

// without is a clause to leave out, by the number SIM_WITHOUT of its bit: do the seeds miss it?
func without() member.Clause {
	bit, err := strconv.Atoi(os.Getenv("SIM_WITHOUT"))
	if err != nil {
		return 0
	}
	return 1 << bit
}

func repeat(t *testing.T, seed uint64) {
	t.Helper()
	var lines []string
	w := sim.RunChaos(seed, without(), func(line string) { lines = append(lines, line) })
	limit := 400
	if os.Getenv("SIM_ALL") != "" {
		limit = len(lines)
	}
	t.Logf("the last lines of %d:\n%s", len(lines), strings.Join(lines[max(0, len(lines)-limit):], "\n"))
	t.Log(list(w.Counts))
	for _, v := range w.Violations() {
		t.Errorf("seed %d: %v", seed, v)
	}
}

// add adds the counts by field.
func add(total *sim.Counts, c sim.Counts) {
	a, b := reflect.ValueOf(total).Elem(), reflect.ValueOf(c)
	for i := range a.NumField() {
		a.Field(i).SetInt(a.Field(i).Int() + b.Field(i).Int())
	}
}

func list(c sim.Counts) string {
	var b strings.Builder
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		fmt.Fprintf(&b, " %s %d", v.Type().Field(i).Name, v.Field(i).Int())
	}
	return b.String()
}

// complete fails if something never happened: then the seeds say nothing about it.
func complete(t *testing.T, c sim.Counts) {
	t.Helper()
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		if v.Field(i).Int() == 0 {
			t.Errorf("%s: never in all seeds", v.Type().Field(i).Name)
		}
	}
}
