package footprint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
)

// fixture is what a run of everything could give.
func fixture() *Report {
	o := Options{Objects: 1000, JoinObjects: 800, Members: []int{1, 3}, Deliveries: []Form{"filter", "slot-label"}, Rate: 50, Window: time.Second, Creates: 100, CreateRate: 10}
	r := &Report{Parameters: o.parameters()}
	for _, c := range o.Cases() {
		res := Result{Case: c, Date: time.Unix(0, 0).UTC(), Window: Window{1, 0.5, 0.25}, Quiet: cluster.Heap{Heap: 100e6, Resident: 200e6, Watches: 12}}
		share := 1000 / c.Members
		if c.What == Idle {
			share = 0
		}
		n := c.Members
		if c.What == Join {
			n++
		}
		for i := range n {
			p := Replica{Role: roleMember, Watches: 8}
			if c.Form == Stock {
				p.Role = []string{roleActive, roleStandby}[i]
			}
			if i == joined {
				p.Role = roleJoiner
			}
			p.LiveHeap, p.Cached = uint64(4e6+10e3*share), map[string]int{"websites": share}
			p.Start = Phase{Bytes: int64(1e5 + 1e3*share), PeakHeap: 20e6}
			p.Window = Phase{Seconds: 1, Bytes: int64(1e4 + 100*share), CPUSeconds: 0.1, PeakHeap: 9e6, Requests: map[string]int{"list websites": 2, "update leases": 5, "patch websites": 1}}
			res.Replicas = append(res.Replicas, p)
		}
		res.Objects, res.Sizes = map[string]int{"websites": share * c.Members}, map[string]int{"websites": 2048}
		switch c.What {
		case Join:
			res.Base, res.Moved = &Window{2, 0.2, 0.1}, 200
		case Latency:
			res.Delays = []Delay{{Stock, 100, 4, 10, 3, 4}, {c.Form, 100, 5, 11, 3, 5}}
		default:
		}
		r.put(res)
	}
	return r
}

func TestMarkdown(t *testing.T) {
	text, err := fixture().Markdown()
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, want := range []string{
		"| Filter | 1 | member | 1,000 | 4.0 | 14.0 | 14.0 | 10.0 |  |  |",
		"| Filter | 3 | member | 333 | 4.0 | 7.3 | 7.3 | 3.3 | 0.33 | -0 % |",
		"| leader election | 2 | standby |",
		"| SlotLabel | 4.0 | 10.0 | 5.0 | 11.0 | 1.25 | 1.10 | 1.0 | 4.0 | 5.0 |",
		"| Filter | 200 |",
		"| 8 | 0 | 0 | 4 | 20 | 1.0 | 0.40 | 0.20 |", // requests of four members; seconds above the base
		"1,000 websites of 2,048 bytes",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "<no value>", "%!"} {
		if strings.Contains(page, bad) {
			t.Errorf("has %q", bad)
		}
	}
	// A table has as many columns in each row.
	columns := 0
	for line := range strings.Lines(page) {
		n := strings.Count(line, "|")
		if columns > 0 && n > 0 && n != columns {
			t.Errorf("%d columns, want %d: %s", n-1, columns-1, line)
		}
		columns = n
	}
	if t.Failed() {
		t.Log(page)
	}
}

// TestMarkdownOfLittle: what was not measured is left out, and so is what would be compared with it.
func TestMarkdownOfLittle(t *testing.T) {
	r := &Report{}
	if text, err := r.Markdown(); err != nil || strings.Contains(string(text), "| --- |") {
		t.Errorf("%v:\n%s", err, text)
	}
	r.put(*fixture().find(Case{Steady, "filter", 3}))
	if text, err := r.Markdown(); err != nil || !strings.Contains(string(text), "| Filter | 3 |") || strings.Contains(string(text), "joins") {
		t.Errorf("%v:\n%s", err, text)
	}
}

// TestPageIsOfItsResults: docs/memory.md is what its results render to.
func TestPageIsOfItsResults(t *testing.T) {
	const path = "../../docs/memory.md"
	text, err := os.ReadFile(resultsPath(path))
	if err != nil {
		t.Skip("there are no results")
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		t.Fatal(err)
	}
	want, err := r.Markdown()
	if err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile(path); err != nil || string(page) != string(want) {
		t.Errorf("%s is not what %s renders to: run `make footprint ARGS='--run ^$'`", path, resultsPath(path))
	}
}

func TestResultsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.md")
	r := fixture()
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	again, err := load(resultsPath(path), r.Parameters)
	if err != nil || len(again.Results) != len(r.Results) {
		t.Fatalf("%v: %d results, want %d", err, len(again.Results), len(r.Results))
	}
	again.put(Result{Case: again.Results[2].Case, Moved: 7})
	if len(again.Results) != len(r.Results) || again.Results[2].Moved != 7 {
		t.Error("a new result must take the place of the old one")
	}
	other := r.Parameters
	other.Objects++
	if _, err := load(resultsPath(path), other); err == nil || !strings.Contains(err.Error(), "other parameters") {
		t.Errorf("results of other parameters: %v", err)
	}
}

func TestCases(t *testing.T) {
	o := Options{Members: []int{1, 3}, Deliveries: []Form{"filter", "shard-selector"}, Objects: 100, JoinObjects: 80}
	var names []string
	last := 0
	for _, c := range o.Cases() {
		names = append(names, c.String())
		if o.objects(c) < last {
			t.Errorf("%s: %d objects after %d: they are not removed", c, o.objects(c), last)
		}
		last = o.objects(c)
	}
	for _, want := range []string{"idle/stock/2", "steady/filter/3", "join/shard-selector/3", "latency/filter/3"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %q", want, names)
		}
	}
	o.Only = regexp.MustCompile("^join/filter/")
	if got := o.Cases(); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestOptions(t *testing.T) {
	good := Options{Objects: 100, JoinObjects: 80, Members: []int{1}, Rate: 1, CreateRate: 1, Creates: 1, Window: time.Second, Output: "x.md"}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*Options){
		"at least 10":  func(o *Options) { o.Objects = 5 },
		"at most":      func(o *Options) { o.JoinObjects = 101 },
		"above 0":      func(o *Options) { o.Rate = 0 },
		"name the":     func(o *Options) { o.Output = "" },
		"from 1 to 20": func(o *Options) { o.Members = []int{0} },
	} {
		o := good
		spoil(&o)
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if _, err := ParseForm("filters"); err == nil {
		t.Error("an unknown delivery")
	}
}
