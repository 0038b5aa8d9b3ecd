package member_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
	"github.com/rota-dev/rota/test/sim"
)

// TestMutants runs scripts in which something was changed: lines dropped, doubled, swapped, delayed, given to another
// pod or taken from another script. What a mutant expects does not count; all checks of package sim do, and so does
// that all is well in the end, once everything held back was let go, and a table that members cannot go by was deleted. MUTANTS=<n> sets how many, MUTANT=<n> repeats one,
// with a trace.
func TestMutants(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	var scripts []*script
	for _, file := range files {
		scripts = append(scripts, readScript(t, file))
	}
	if n, err := strconv.ParseUint(os.Getenv("MUTANT"), 10, 64); err == nil {
		m := mutate(scripts, n)
		t.Log(strings.Join(m.lines, "\n"))
		r := m.mutant(true)
		t.Fatalf("%v\n%s", r.w.Violations(), strings.Join(r.trace, "\n"))
	}
	count, err := strconv.ParseUint(os.Getenv("MUTANTS"), 10, 64)
	if err != nil {
		// With hundreds of duties, few mutants take as long as all others together.
		few := strings.NewReplacer("1-300", "1-12", "1-200", "1-12")
		for _, s := range scripts {
			for i, line := range s.lines {
				s.lines[i] = few.Replace(line)
			}
		}
		if count = 500; testing.Short() {
			count = 100
		}
	}
	var next atomic.Uint64
	var mu sync.Mutex
	found := map[string]int{}
	begun := time.Now()
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for n := next.Add(1); n <= count; n = next.Add(1) {
				m := mutate(scripts, n)
				r := m.mutant(false)
				if !r.w.Failed() {
					continue
				}
				v := r.w.Violations()[0]
				mu.Lock()
				if found[v.Rule]++; found[v.Rule] <= 3 {
					t.Errorf("MUTANT=%d of %s: %s: %s\n%s", n, filepath.Base(m.file), v.Rule, v.Message, strings.Join(m.lines, "\n"))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d mutants of %d scripts in %v, violations: %v", count, len(scripts), time.Since(begun).Round(time.Second), found)
}

// mutate makes a script of others.
func mutate(scripts []*script, seed uint64) *script {
	rng := rand.New(rand.NewPCG(seed, 2))
	pick := func() *script { return scripts[rng.IntN(len(scripts))] }
	from := pick()
	m := &script{file: from.file}
	depth := 0
	for _, line := range from.lines { // loops are written out
		switch n, loop := strings.CutPrefix(line, "repeat "); {
		case loop:
			depth = len(m.lines) + 1000*number(n)
		case line == "end":
			body := slices.Clone(m.lines[depth%1000:])
			for range min(depth/1000, 4) - 1 {
				m.lines = append(m.lines, body...)
			}
		case strings.HasPrefix(line, "hand "), strings.HasPrefix(line, "stale "):
			// The model does as it is told, and not as production does when something else comes between.
		case line != "":
			m.lines = append(m.lines, strings.TrimSuffix(line, " unfenced"))
		}
	}
	pods := []string{"a", "b", "c", "d", "e"}
	for range 1 + rng.IntN(4) {
		i := rng.IntN(len(m.lines))
		switch rng.IntN(8) {
		case 0:
			m.lines = slices.Delete(m.lines, i, i+1)
		case 1:
			m.lines = slices.Insert(m.lines, i, m.lines[i])
		case 2:
			j := min(i+1+rng.IntN(3), len(m.lines)-1)
			m.lines[i], m.lines[j] = m.lines[j], m.lines[i]
		case 3:
			m.lines = slices.Insert(m.lines, i, fmt.Sprintf("advance %dms", []int{1, 30, 300, 2000, 5000, 11000, 16000}[rng.IntN(7)]))
		case 4: // another pod's fate
			words := strings.Fields(m.lines[i])
			for j := 1; j < len(words); j++ {
				if slices.Contains(pods, words[j]) {
					words[j] = pods[rng.IntN(3)]
				}
			}
			m.lines[i] = strings.Join(words, " ")
		case 5: // another outcome
			outcomes := []string{"lose", "hold", "release", "admit", "crash", "pause", "resume", "leave", "restart"}
			if words := strings.Fields(m.lines[i]); slices.Contains(outcomes, words[0]) {
				words[0] = outcomes[rng.IntN(len(outcomes))]
				m.lines[i] = strings.Join(words, " ")
			}
		case 6: // a line of another script
			other := pick().lines
			if line := other[rng.IntN(len(other))]; line != "" && !strings.HasPrefix(line, "repeat") && line != "end" && !strings.HasPrefix(line, "hand ") && !strings.HasPrefix(line, "stale ") {
				m.lines = slices.Insert(m.lines, i, strings.TrimSuffix(line, " unfenced"))
			}
		case 7:
			p := pods[rng.IntN(3)]
			m.lines = slices.Insert(m.lines, i, []string{
				"lose " + p + " update table", "lose " + p + " update lease", "admit " + p + " update table", "hold " + p + " get table",
				"block " + p + " tables", "unblock " + p + " tables", "block " + p + " leases", "unblock " + p + " leases",
				"pause " + p, "resume " + p, "crash " + p, "restart " + p, "leave " + p, "start " + p,
			}[rng.IntN(14)])
		}
		if len(m.lines) == 0 {
			break
		}
	}
	return m
}

// mutant runs a mutant: what cannot be done is left out.
func (s *script) mutant(trace bool) *run {
	r := newRun()
	r.vars["$S"] = "0"
	o := sim.Options{Slots: 8, Duties: 16, Load: r.load}
	if trace {
		o.Trace = func(line string) { r.trace = append(r.trace, line) }
	}
	for _, line := range s.lines {
		if n, ok := strings.CutPrefix(line, "slots "); ok {
			o.Slots = min(slot.Count(number(n)), 256) // one with 4,096, that moves them one by one, takes minutes
		}
		if line == "byload" {
			o.Tune = r.byLoad
		}
		if strings.Contains(line, "duties=1-") || strings.Contains(line, ",1-") {
			o.Duties = slot.MaxDuties
		}
	}
	r.w = sim.New(o)
	for _, line := range s.lines {
		if r.w.Failed() {
			return r
		}
		if trace {
			r.trace = append(r.trace, "# "+line)
		}
		r.attempt(line)
	}
	r.w.Net.Down = false
	for _, n := range r.w.Live() {
		n.Mute = false
		n.HaltBefore(nil)
		n.Resume()
		for _, name := range []string{
			sim.CreateLease, sim.RenewLease, sim.DeleteLease, sim.ReadTable, sim.CreateTable, sim.Swap, sim.Warm, sim.Load, sim.Drain,
		} {
			n.Release(name)
		}
		for _, f := range []*sim.Feed{n.Tables(), n.Leases()} {
			if f != nil {
				f.Unblock()
			}
		}
		for at := range o.Slots {
			n.Land(slot.Slot(at))
			n.Reconcile(slot.Slot(at))
		}
		for at := range o.Duties {
			n.Land(slot.Slot(int(o.Slots) + at))
		}
	}
	for range 5 { // workers take deletions as soon as they may
		r.w.Run(2 * time.Second)
		for _, n := range r.w.Live() {
			for at := range o.Slots {
				n.Reconcile(slot.Slot(at))
			}
		}
	}
	if !r.w.Failed() && slices.ContainsFunc(r.w.Live(), awaitsTable) {
		r.w.Objects.RemoveTable()
		r.w.Sync()
	}
	if !r.w.Failed() {
		r.w.Settle(5 * time.Minute)
	}
	return r
}

// awaitsTable says that a member has asked for the table to be repaired or deleted, and that nobody has done so.
func awaitsTable(n *sim.Node) bool {
	return lastIndex(n.Notes, "TableInvalid") > lastIndex(n.Notes, "TableValid")
}

func lastIndex(notes []string, reason string) int {
	for i, note := range slices.Backward(notes) {
		if note == reason {
			return i
		}
	}
	return -1
}

// attempt runs a line, unless what it asks for cannot be.
func (r *run) attempt(line string) {
	defer func() { _ = recover() }()
	words := strings.Fields(line)
	for j, word := range words {
		if value, ok := r.vars[word]; ok && words[0] != "let" {
			words[j] = value
		}
	}
	switch words[0] {
	case "expect":
	case "start", "restart":
		// One process runs in a container at a time.
		pods := slices.DeleteFunc(words[1:], func(pod string) bool {
			return slices.ContainsFunc(r.w.Live(), func(n *sim.Node) bool { return n.Replica.Pod == pod })
		})
		_ = r.command(append(words[:1:1], pods...))
	case "wait", "never":
		// The wait matters, not what was waited for; in steps that are not too small.
		for end := r.w.Now() + min(duration(words[1]), 20*time.Second); r.w.Now() < end && !r.w.Failed(); r.w.Run(5 * time.Millisecond) {
			if words[0] == "wait" && r.holds(words[2:]) {
				return
			}
		}
	case "settle":
		r.w.Run(30 * time.Second)
	default:
		_ = r.command(words)
	}
}
