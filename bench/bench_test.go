package bench

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/bench/drainlabel"
)

func TestMain(m *testing.M) {
	if os.Getenv(EnvOperator) != "" {
		os.Exit(OperatorMain())
	}
	os.Exit(m.Run())
}

// The strategies live on a real control plane. What they cost is not judged, but what they write is.
func TestLives(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes two minutes")
	}
	var strategies []Strategy
	for _, name := range []string{"leader", "modulo", "drain-label", "filter"} {
		s, ok := find(name)
		if !ok {
			t.Fatal(name)
		}
		strategies = append(strategies, s)
	}
	o := Options{
		Workload: Workloads()[0], Objects: 200, Replicas: []int{2}, Strategies: strategies, Rounds: 1, Rate: 5, Window: 2 * time.Second,
		Quiet: time.Second, Output: filepath.Join(t.TempDir(), "b.json"), Progress: t.Output(),
	}
	o.Scenarios = []string{"churn", "join", "leave"}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	series := report.Series[0]
	for i := range series.Results {
		r := &series.Results[i]
		if r.Missed > 0 {
			t.Errorf("%s: %d changes were not reconciled", r, r.Missed)
		}
		if r.Strategy != "drain-label" && r.Writes > 0 {
			t.Errorf("%s: %s wrote beside reconciles", r, r.Strategy)
		}
		if r.Scenario != "start" && (r.Changes == 0 || r.Reconciles == 0) {
			t.Errorf("%s: nothing was changed, or nothing reconciled", r)
		}
	}
	// A Website that moves costs two writes, and each of its children one. A conflict costs one more, and on a busy
	// machine the sharder lists what it has moved already.
	moved := 0
	two := drainlabel.NewRing("drain-label-2-0", "drain-label-2-1")
	three := drainlabel.NewRing("drain-label-2-0", "drain-label-2-1", "drain-label-2-2")
	for i := range 50 {
		key := "web.example.com/v1/Website/bench-sites/" + cluster.SiteName(i)
		if two.Of(key) != three.Of(key) {
			moved++
		}
	}
	join := series.of("drain-label", 2, "join")[0]
	if least := moved * (2 + 3); join.Writes < least || join.Writes > 2*least+20 {
		t.Errorf("%s: %d Websites moved: want %d writes, or some more", join, moved, least)
	}
	base := filepath.Join(t.TempDir(), "b")
	if err := report.Write(base); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base + "-websites-200.svg"); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(base + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## Steady load: 2 replicas, 200 objects", "| hash modulo |", "| drain label |", "](b-websites-200.svg)"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// Dispatchers and polling have no caches, and do the same work.
func TestUncached(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	strategies, err := ParseStrategies("dispatch,poll")
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{
		Workload: Workloads()[0], Objects: 200, Replicas: []int{2}, Strategies: strategies, Rounds: 1, Rate: 5,
		Window: 2 * time.Second, Quiet: time.Second, Output: filepath.Join(t.TempDir(), "b.json"), Progress: t.Output(),
		Scenarios: []string{"rest", "churn", "leave", "recreate"}, poll: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	results := report.Series[0].Results
	if len(results) != 5*len(strategies) {
		t.Errorf("%d results: want 5 of each strategy", len(results))
	}
	for i := range results {
		r := &results[i]
		if r.Missed > 0 || r.Writes > 0 {
			t.Errorf("%s of %s: %d changes were missed, %d writes beside reconciles: want none", r, r.Strategy, r.Missed, r.Writes)
		}
		if loaded := r.Scenario != "start" && r.Scenario != "rest"; loaded && (r.Changes == 0 || r.Reconciles == 0) {
			t.Errorf("%s of %s: nothing was changed, or nothing reconciled", r, r.Strategy)
		}
		if r.ServerHeap == 0 {
			t.Errorf("%s of %s: the heap of the API server is not known", r, r.Strategy)
		}
		if lists := r.requests("list", "websites"); r.Scenario == "rest" && (r.Strategy == "poll") != (lists > 0) {
			t.Errorf("%s: %s listed the Websites %d times at rest", r, r.Strategy, lists)
		}
		if watches := r.requests("watch", "websites"); r.Strategy == "poll" && watches > 0 {
			t.Errorf("%s: polling watches Websites", r)
		}
	}
}

// Every workload lives: what is changed and made is shown to be reconciled.
func TestWorkloads(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes two minutes")
	}
	s, _ := find("leader")
	for _, w := range Workloads()[1:] { // TestLives has the first
		t.Run(w.Name, func(t *testing.T) {
			o := Options{
				Workload: w, Objects: 40 * w.perMain(), Replicas: []int{1}, Strategies: []Strategy{s}, Rounds: 1, Rate: 5,
				Window: 2 * time.Second, Quiet: time.Second, Output: filepath.Join(t.TempDir(), "b.json"), Progress: t.Output(),
			}
			o.Scenarios = []string{"create", "churn", "outage"}
			switch w.Name {
			case "calls":
				o.Scenarios = []string{"churn", "outage"}
			case "neighbors":
				duties, _ := find("duties")
				o.Scenarios, o.Strategies, o.Replicas = []string{"churn", "flood"}, append(o.Strategies, duties), []int{2}
			case "pairs":
				o.Scenarios, o.Profiles = []string{"create", "churn", "restart"}, t.TempDir()
			}
			report, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if o.Profiles != "" {
				for _, of := range []string{
					"start-1-apiserver", "start-1-leader-1-0-*", "churn-1-apiserver", "churn-1-leader-1-0-*", "restart-1-leader-1-0-*",
				} {
					paths, err := filepath.Glob(filepath.Join(o.Profiles, "leader-1-"+of+".pprof"))
					if err != nil || len(paths) == 0 {
						t.Errorf("no profile %s, error %v", of, err)
					}
					for _, path := range paths {
						if info, err := os.Stat(path); err != nil || info.Size() == 0 {
							t.Errorf("%s: %v, or it is empty", path, err)
						}
					}
				}
			}
			results := report.Series[0].Results
			if want := (1 + len(o.Scenarios)) * len(o.Strategies); len(results) != want {
				t.Errorf("%d results, want %d: of the starts, and of %q", len(results), want, o.Scenarios)
			}
			for i := range results {
				r := &results[i]
				if r.Scenario != "start" && (r.Missed > 0 || r.Changes == 0 || r.Written == 0) {
					t.Errorf("%s, %d writes in all: a change was missed, or not written", r, r.Written)
				}
			}
		})
	}
}

func TestSearch(t *testing.T) {
	for _, capacity := range []float64{1.5, 7, 20, 21, 90, 1000} {
		got, err := search(15, func(rate float64) (bool, error) { return rate <= capacity, nil })
		if err != nil || got > capacity || got*narrow < capacity {
			t.Errorf("found %v, error %v: want at most %v, and within a twentieth of it", got, err, capacity)
		}
	}
	if got, err := search(15, func(float64) (bool, error) { return false, nil }); err == nil {
		t.Errorf("found %v where nothing is reconciled in time", got)
	}
	failure := errors.New("the API server is gone")
	if _, err := search(15, func(float64) (bool, error) { return false, failure }); !errors.Is(err, failure) {
		t.Errorf("error %v, want that of the attempt", err)
	}
}

func TestWaits(t *testing.T) {
	begun := time.Now()
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	w := newWaits()
	w.sent("a", 2, at(0), at(1))
	w.sent("b", 2, at(0), at(1))
	w.sent("a", 3, at(10), at(11))
	w.observed("a", 2, at(5))
	w.observed("b", 1, at(6))
	if n := w.waiting(); n != 2 {
		t.Errorf("%d wait, want the third of a and the second of b", n)
	}
	w.observed("a", 3, at(30))
	w.observed("c", 7, at(31))
	w.sent("c", 7, at(29), at(32)) // the status was seen before the answer
	done, missed := w.take()
	slices.Sort(done)
	if len(done) != 3 || done[0] != 3*time.Millisecond || done[1] != 5*time.Millisecond || missed != 1 {
		t.Errorf("waited %v, and %d missed: want 3, 5 and 20 ms, and 1", done, missed)
	}
	if done, missed = w.take(); len(done) != 0 || missed != 0 {
		t.Errorf("after that: %v, %d", done, missed)
	}
}

func TestHold(t *testing.T) {
	r := &Series{Results: []Result{
		{Strategy: "leader", Replicas: 3, Scenario: "churn", CPU: 4, Changes: 100},
		{Strategy: "filter", Replicas: 3, Scenario: "churn", CPU: 5, Changes: 100},
		{Strategy: "filter", Replicas: 3, Scenario: "churn", CPU: 7, Changes: 100},
		{Strategy: "filter", Replicas: 3, Scenario: "join", Writes: 2},
	}}
	number := func(f float64) *float64 { return &f }
	for _, c := range []struct {
		bound Range
		want  string // of the error; "": it holds
	}{
		{Range{Scenario: "churn", Figure: "cpu", Strategy: "filter", To: "leader", Max: number(1.5)}, ""},
		{Range{Scenario: "churn", Figure: "cpu", Strategy: "filter", To: "leader", Max: number(1.4)}, "1.5, at most 1.4"},
		{Range{Scenario: "churn", Figure: "cpu", Strategy: "filter", To: "leader", Min: number(2)}, "1.5, at least 2"},
		{Range{Scenario: "join", Figure: "writes", Strategy: "filter", Max: number(0)}, "2, at most 0"},
		{Range{Scenario: "join", Figure: "writes", Strategy: "leader", Max: number(0)}, "no result"},
		{Range{Scenario: "join", Figure: "writes", Strategy: "filter", To: "leader", Max: number(0)}, "no result of leader"},
		{Range{Scenario: "join", Figure: "beauty", Strategy: "filter", Max: number(0)}, `figure "beauty"`},
	} {
		err := r.hold([]Range{c.bound}, 3, func(string) {})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", &c.bound, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", &c.bound, err, c.want)
		}
	}
}

func TestRangesOfTheRepository(t *testing.T) {
	if _, err := LoadRanges("ranges.json"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{
		`[{"scenario":"churn","figure":"x","strategy":"leader","max":1}]`,
		`[{"scenario":"churn","figure":"cpu","strategy":"leaders","max":1}]`,
		`[{"scenario":"x","figure":"cpu","strategy":"leader","max":1}]`,
		`[{"scenario":"churn","figure":"cpu","strategy":"leader"}]`,
	} {
		path := filepath.Join(t.TempDir(), "r.json")
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadRanges(path); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func TestBadOptions(t *testing.T) {
	good := func() Options {
		return Options{
			Workload: Workloads()[0], Objects: 100, Replicas: []int{1}, Strategies: Strategies(), Rounds: 1, Rate: 1, Window: 1, Quiet: 1,
		}
	}
	for want, change := range map[string]func(*Options){
		"39 objects":   func(o *Options) { o.Objects = 39 },
		"replicas [0]": func(o *Options) { o.Replicas = []int{0} },
		"0 rounds":     func(o *Options) { o.Rounds = 0 },
		"rate":         func(o *Options) { o.Rate = 0 },
		"strategies":   func(o *Options) { o.Strategies = nil },
		`"rain"`:       func(o *Options) { o.Scenarios = []string{"rain"} },
	} {
		o := good()
		change(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := ParseStrategies("leader,follower"); err == nil || !strings.Contains(err.Error(), "follower") {
		t.Errorf("%v", err)
	}
}

// The picture of waits is of the number of replicas that most was measured of, not of one that few scenarios had.
func TestWhatIsDrawn(t *testing.T) {
	s := &Series{}
	for n, scenarios := range map[int][]string{3: {"start", "churn", "join", "leave"}, 10: {"start", "churn"}} {
		for _, name := range scenarios {
			s.put(true, "filter", n, []Result{{Strategy: "filter", Replicas: n, Scenario: name}})
		}
	}
	if n := s.mostScenarios(); n != 3 {
		t.Errorf("%d replicas, want 3", n)
	}
	for _, name := range []string{"join", "leave"} {
		s.put(true, "filter", 10, []Result{{Strategy: "filter", Replicas: 10, Scenario: name}})
	}
	if n := s.mostScenarios(); n != 10 {
		t.Errorf("%d replicas, want the larger number of two of which as much was measured", n)
	}
}
