package sim_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/sim"
)

// traffic is what members and API server say to each other in a while.
type traffic struct {
	requests map[string]int
	events   int
	listed   int
	steps    int
	took     time.Duration
}

func measure(w *sim.World, d time.Duration) traffic {
	before, steps := w.Messages, w.Counts.Steps
	requests := maps.Clone(before.Requests)
	w.Run(d)
	t := traffic{requests: map[string]int{}, events: w.Messages.Events - before.Events, listed: w.Messages.Listed - before.Listed, steps: w.Counts.Steps - steps, took: d}
	for name, n := range w.Messages.Requests {
		if n > requests[name] {
			t.requests[name] = n - requests[name]
		}
	}
	return t
}

func (t traffic) total() int {
	n := 0
	for _, count := range t.requests {
		n += count
	}
	return n
}

// settled returns a rota of n members that has nothing to do, in a world without faults.
func settled(t *testing.T, n int) (*sim.World, *table.Table) {
	t.Helper()
	const slots = 4096
	w := sim.New(sim.Options{Slots: slots})
	tab := table.New(slots, slot.KeyName, 1000)
	for i := range n {
		id := fmt.Sprintf("web-%d-1", i)
		tab.Put(table.Member{ID: id, Pod: fmt.Sprintf("web-%d", i), PodUID: uid(i), Container: "main", Build: "v1", Weight: 1, MinFormat: table.OldestFormat, MaxFormat: table.Format, Joined: 1})
		var set slot.Set
		set.AddRange(slot.Range{First: slot.Slot(i * slots / n), Last: slot.Slot((i+1)*slots/n - 1)})
		tab.Update(set, func(r *table.Run) { r.Owner, r.Epoch = id, 1000 })
	}
	tab.Seal(1001)
	w.Put(tab)
	for i := range n {
		w.Start(&sim.Replica{Pod: fmt.Sprintf("web-%d", i), PodUID: uid(i), Container: "main", Build: "v1", Weight: 1})
		w.Run(2 * time.Second / time.Duration(n))
	}
	w.Run(5 * time.Second)
	if why := w.Unsettled(); why != "" || w.Failed() {
		t.Fatal(why, w.Violations())
	}
	return w, tab
}

func uid(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// The load on the API server grows with the number of members and no faster (rule R3). The figures that it prints are
// those of docs/protocol.md: SIM_MEMBERS=1000 go test -run TestMessages -v ./test/sim. That takes 30 s; make check
// WHAT=sim does it.
func TestMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var steady, join, crash []traffic
	sizes := []int{10, 100}
	if os.Getenv("SIM_MEMBERS") == "1000" {
		sizes = append(sizes, 1000)
	}
	for _, n := range sizes {
		w, tab := settled(t, n)
		bytes := 0
		for _, text := range table.Encode(tab) {
			bytes += len(text)
		}
		start := time.Now()
		s := measure(w, 10*time.Second)
		t.Logf("%d members: the table has %d bytes; %v of CPU per Step in steady state", n, bytes, time.Since(start)/time.Duration(s.steps))
		steady = append(steady, s)

		start = time.Now()
		w.Start(&sim.Replica{Pod: "new", PodUID: uid(n), Container: "main", Build: "v1", Weight: 1})
		j := measure(w, 10*time.Second)
		if why := w.Unsettled(); why != "" || w.Failed() {
			t.Fatal(n, why, w.Violations())
		}
		t.Logf("%d members, one joins: %v of CPU per Step", n, time.Since(start)/time.Duration(j.steps))
		join = append(join, j)

		start = time.Now()
		w.Nodes[n/2].Crash()
		c := measure(w, 30*time.Second)
		if why := w.Unsettled(); why != "" || w.Failed() {
			t.Fatal(n, why, w.Violations())
		}
		t.Logf("%d members, one crashes: %v of CPU per Step", n, time.Since(start)/time.Duration(c.steps))
		crash = append(crash, c)
	}
	report(t, "steady state, per second", sizes, steady, nil)
	report(t, "one join, beyond the steady state", sizes, join, steady)
	report(t, "one crash, beyond the steady state", sizes, crash, steady)

	for _, what := range []struct {
		name string
		of   func(traffic) int
	}{{"requests", traffic.total}, {"watch events", func(t traffic) int { return t.events }}} {
		small := float64(what.of(steady[0])) / float64(sizes[0])
		for i, n := range sizes[1:] {
			if large := float64(what.of(steady[i+1])) / float64(n); large > 1.5*small {
				t.Errorf("%s per member in 10 s: %.1f among %d members, %.1f among 10: want at most 1.5 times that", what.name, large, n, small)
			}
		}
	}
	// Three times what docs/protocol.md says of each size, beyond the steady state: a change of the table goes to everybody,
	// and whoever has slots to give or to take writes once or more.
	for i, size := range sizes {
		for _, phase := range []struct {
			name             string
			of               traffic
			requests, events int
		}{
			{"join", join[i], []int{100, 400, 100}[i], []int{600, 13_500, 24_000}[i]},
			{"crash", crash[i], []int{130, 650, 100}[i], []int{200, 13_500, 33_000}[i]},
		} {
			got := over(phase.of, steady[i])
			if got.total() > phase.requests || got.events > phase.events {
				t.Errorf("%d members, %s: %d requests and %d watch events, want at most %d and %d", size, phase.name, got.total(), got.events, phase.requests, phase.events)
			}
		}
	}
}

// over is what goes beyond the steady state.
func over(t, steady traffic) traffic {
	share := func(n int) int { return int(float64(n) * float64(t.took) / float64(steady.took)) }
	out := traffic{requests: map[string]int{}, events: t.events - share(steady.events), listed: t.listed}
	for name, n := range t.requests {
		out.requests[name] = max(0, n-share(steady.requests[name]))
	}
	return out
}

func report(t *testing.T, title string, sizes []int, all, base []traffic) {
	t.Helper()
	names := map[string]bool{}
	for _, tr := range all {
		for name := range tr.requests {
			names[name] = true
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n| members |", title)
	sorted := slices.Sorted(maps.Keys(names))
	for _, name := range sorted {
		fmt.Fprintf(&b, " %s |", name)
	}
	b.WriteString(" watch events | objects listed |\n")
	for i, tr := range all {
		per := 1.0
		if base == nil {
			per = tr.took.Seconds()
		} else {
			tr = over(tr, base[i])
		}
		fmt.Fprintf(&b, "| %d |", sizes[i])
		for _, name := range sorted {
			fmt.Fprintf(&b, " %.5g |", float64(tr.requests[name])/per)
		}
		fmt.Fprintf(&b, " %.5g | %.5g |\n", float64(tr.events)/per, float64(tr.listed)/per)
	}
	t.Log(b.String())
	if path := os.Getenv("SIM_REPORT"); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			defer f.Close()
			fmt.Fprintln(f, b.String())
		}
	}
}
