package kubernetes

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/internal/cli/check"
	"github.com/rota-dev/rota/test/controlplane/build"
)

const page = "../../docs/kubernetes.md"

// TestPageIsOfTheRecords: the page has what the records say, and `rota check` and the README claim what passed, of
// versions that can be built.
func TestPageIsOfTheRecords(t *testing.T) {
	records, err := Read("records")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	filled, err := Fill(string(text), records)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), filled); diff != "" {
		t.Errorf("run `go run ./test/kubernetes/cmd -write` (-page +records):\n%s", diff)
	}
	good := Minors(records)
	if diff := cmp.Diff(good, check.Tried); diff != "" {
		t.Errorf("check.Tried is not what passed (-passed +Tried):\n%s", diff)
	}
	all, byDefault, err := build.Versions()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(good, byDefault) {
		t.Errorf("%s, with which all tests run, is not among those that passed: %v", byDefault, good)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(readme), "\n| Kubernetes API server |")
	row, _, _ = strings.Cut(row, "\n")
	for _, r := range records {
		if !slices.Contains(all, r.Minor) {
			t.Errorf("there is a record of %s, which cannot be built", r.Minor)
		}
		if passed := slices.Contains(good, r.Minor); strings.Contains(row, r.Version) != passed {
			t.Errorf("README.md: passed on %s: %v, but the row of versions is %q", r.Version, passed, row)
		}
	}
}

// TestFailures: each failure is told, and a version with one is not among those that passed.
func TestFailures(t *testing.T) {
	zero := 0
	good := func() Record {
		r := Record{Minor: "1.33", Version: "v1.33.1", Suites: map[string]Outcome{}, Demo: Demo{Objects: 300, ForeignWrites: &zero}}
		for _, name := range Suites {
			r.Suites[name] = Outcome{Passed: 3}
		}
		return r
	}
	for name, c := range map[string]struct {
		change func(*Record)
		want   []string // in the failures, or on the page if nothing failed
	}{
		"all is well":    {func(*Record) {}, nil},
		"a test":         {func(r *Record) { r.Suites["fence"] = Outcome{Passed: 2, Failed: []string{"TestX/y"}} }, []string{"fence: TestX/y failed"}},
		"no test ran":    {func(r *Record) { r.Suites["SlotLabel"] = Outcome{Skipped: 1} }, []string{"SlotLabel: nothing passed"}},
		"a suite is new": {func(r *Record) { delete(r.Suites, "rota check") }, []string{"rota check: nothing passed"}},
		"the check":      {func(r *Record) { r.Pre = []check.Line{{Level: check.Failed, Text: "no leases"}} }, []string{"rota check --pre: no leases"}},
		"a warning":      {func(r *Record) { r.Pre = []check.Line{{Level: check.Warning, Text: "dear lists"}} }, nil},
		"the demo":       {func(r *Record) { r.Demo.Failures, r.Demo.Overlaps = "1 time a Website was", 1 }, []string{"the demo: 1 time a Website was"}},
	} {
		r := good()
		c.change(&r)
		if diff := cmp.Diff(c.want, r.Failures()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if passed := slices.Contains(Minors([]Record{r}), r.Minor); passed != (c.want == nil) {
			t.Errorf("%s: passed: %v", name, passed)
		}
		text := results([]Record{r})
		for _, failure := range c.want {
			if !strings.Contains(text, "\nFailed on v1.33.1:\n\n- "+failure+"\n") {
				t.Errorf("%s: the page does not say %q:\n%s", name, failure, text)
			}
		}
	}
}

func TestCells(t *testing.T) {
	r := Record{Version: "v1.31.14", Etcd: "3.5.16", Suites: map[string]Outcome{"Filter": {Passed: 84}, "ShardSelector": {Passed: 40},
		"SlotLabel": {Passed: 39, Failed: []string{"TestAPIServer/SlotLabelX/y"}}},
		Server: Server{Policies: "v1", Events: true, Bookmarks: true, Lists: Reads{20, 600, 20}, Pages: Reads{40, 400, 400}}, TestsSeconds: 301}
	text := results([]Record{r})
	for _, want := range []string{
		"\n| v1.31.14 | 3.5.16 | yes (84 tests) | **no**: 1 of 40 tests failed | as Filter: the selector is ignored (40 tests) | not tried | not tried | " +
			"not run | 0.0 s | 301 s | 0 s |\n",
		"\n| v1.31.14 | `v1` | no | yes | no | no | yes | yes | no |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if _, err := Fill("no place", nil); err == nil {
		t.Error("a page without a place is filled")
	}
}

func TestReadEvents(t *testing.T) {
	const events = `{"Action":"start","Package":"x/internal/delivery"}
{"Action":"run","Package":"x/internal/delivery","Test":"TestAPIServer"}
{"Action":"output","Package":"x/internal/delivery","Test":"TestAPIServer","Output":"--- hello\n"}
{"Action":"pass","Package":"x/internal/delivery","Test":"TestAPIServer/TypedProtobuf/Random","Elapsed":1}
{"Action":"pass","Package":"x/internal/delivery","Test":"TestAPIServer/TypedProtobuf","Elapsed":2}
{"Action":"fail","Package":"x/internal/delivery","Test":"TestAPIServer/SlotLabelUnstructuredJSON/Random","Elapsed":1}
{"Action":"fail","Package":"x/internal/delivery","Test":"TestAPIServer/SlotLabelUnstructuredJSON","Elapsed":1}
{"Action":"skip","Package":"x/internal/delivery","Test":"TestAPIServer/ShardSelectorTypedProtobuf/Random","Elapsed":0}
{"Action":"fail","Package":"x/internal/delivery","Test":"TestAPIServer","Elapsed":3}
{"Action":"pass","Package":"x/fence","Test":"TestCheck","Elapsed":1.5}
{"Action":"pass","Package":"x/cmd/rota","Test":"TestCheckPre","Elapsed":0.5}
{"Action":"fail","Package":"x/internal/delivery","Elapsed":4}
`
	got := map[string]Outcome{}
	var log bytes.Buffer
	failed, err := readEvents(strings.NewReader(events), got, &log)
	want := map[string]Outcome{
		"Filter":        {Passed: 2, Seconds: 2},
		"SlotLabel":     {Failed: []string{"TestAPIServer/SlotLabelUnstructuredJSON/Random"}, Seconds: 1},
		"ShardSelector": {Skipped: 1},
		"fence":         {Passed: 1, Seconds: 1.5}, "rota check": {Passed: 1, Seconds: 0.5},
	}
	if diff := cmp.Diff(want, got); diff != "" || failed != 2 || err != nil || log.String() != "--- hello\n" {
		t.Errorf("%d failed, %v, log %q (-want +got):\n%s", failed, err, log.String(), diff)
	}
}

func TestCountFetched(t *testing.T) {
	for name, c := range map[string]struct {
		metrics string
		want    int
	}{
		"1.31": {"apiserver_storage_list_fetched_objects_total{resource=\"configmaps\"} 3\napiserver_storage_list_fetched_objects_total{resource=\"pods\"} 9\n", 3},
		"1.34": {"apiserver_storage_list_fetched_objects_total{group=\"\",resource=\"configmaps\"} 1e+02\n", 100},
		"1.37": {"apiserver_storage_list_fetched_objects_total{group=\"\",index=\"\",resource=\"configmaps\",storage=\"watchcache\"} 8\n" +
			"apiserver_storage_list_fetched_objects_total{group=\"\",index=\"\",resource=\"configmaps\",storage=\"etcd\"} 2\n", 2},
		"none": {"up 1\n", 0},
	} {
		if got, err := countFetched(strings.NewReader(c.metrics)); got != c.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
	}
}

func TestReadOrdersVersions(t *testing.T) {
	folder := t.TempDir()
	for _, minor := range []string{"1.9", "1.31", "1.10"} {
		if err := (&Record{Minor: minor}).Write(folder); err != nil {
			t.Fatal(err)
		}
	}
	records, err := Read(folder)
	var got []string
	for _, r := range records {
		got = append(got, r.Minor)
	}
	if diff := cmp.Diff([]string{"1.9", "1.10", "1.31"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := os.Rename(filepath.Join(folder, "1.9.json"), filepath.Join(folder, "1.8.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(folder); err == nil || !strings.Contains(err.Error(), `1.8.json is of Kubernetes "1.9"`) {
		t.Errorf("a record of another version: %v", err)
	}
}
