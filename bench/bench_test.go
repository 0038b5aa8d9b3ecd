package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rota-dev/rota/bench/drainlabel"
)

func TestMain(m *testing.M) {
	if os.Getenv(EnvOperator) != "" {
		os.Exit(OperatorMain())
	}
	log.SetLogger(logr.Discard()) // replicas have logs of their own
	os.Exit(m.Run())
}

// The strategies live on a real control plane. What they cost is not judged, but what they write is.
func TestLives(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes three minutes")
	}
	strategies, err := ParseStrategies("leader,modulo,drain-label,filter,slot-label,dispatch")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Objects: 200, Replicas: []int{2}, Strategies: strategies, Rounds: 1, Rate: 5, Window: 2 * time.Second,
		Quiet: time.Second, Output: filepath.Join(t.TempDir(), "b.json"), Progress: t.Output(),
		Scenarios: []string{"churn", "join", "leave"},
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	series := report.Series[0]
	if want := len(strategies) * 4; len(series.Results) != want {
		t.Errorf("%d results, want %d: of the starts, and of %q", len(series.Results), want, o.Scenarios)
	}
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
		if r.ServerHeap == 0 {
			t.Errorf("%s: the heap of the API server is not known", r)
		}
	}
	// A Website that moves costs two writes, and each of its children one. A conflict costs one more, and on a busy
	// machine the sharder lists what it has moved already.
	moved := 0
	two := drainlabel.NewRing("drain-label-2-0", "drain-label-2-1")
	three := drainlabel.NewRing("drain-label-2-0", "drain-label-2-1", "drain-label-2-2")
	for i := range 50 {
		key := fmt.Sprintf("web.example.com/v1/Website/bench-sites/site-%05d", i)
		if two.Of(key) != three.Of(key) {
			moved++
		}
	}
	join := series.of("drain-label", 2, "join")[0]
	if least := moved * (2 + 3); join.Writes < least || join.Writes > 2*least+20 {
		t.Errorf("%s: %d Websites moved: want %d writes, or some more", join, moved, least)
	}
	if err := report.Write(filepath.Join(t.TempDir(), "b")); err != nil {
		t.Fatal(err)
	}
}

// The page in docs is made of the results beside it.
func TestPage(t *testing.T) {
	report, err := Load("../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := report.Page("benchmarks")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/benchmarks.md is not what the results say; run bin/bench -render:\n%s", diff)
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
			Objects: 100, Replicas: []int{1}, Strategies: Strategies(), Rounds: 1, Rate: 1, Window: 1, Quiet: 1, Output: "b.json",
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
