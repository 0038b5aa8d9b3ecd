package split

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/apiservers/split"
	"github.com/rota-dev/rota/test/stage"
)

func TestCases(t *testing.T) {
	names := func(o Options, round int) (out []string) {
		for _, c := range o.cases(round) {
			out = append(out, c.String())
		}
		return out
	}
	o := Options{Only: regexp.MustCompile("^(default|fast)/")}
	for round, want := range [][]string{
		{"default/one", "default/three", "default/thirds", "fast/one", "fast/three"},
		{"default/thirds", "default/three", "default/one", "fast/three", "fast/one"},
	} {
		if d := cmp.Diff(want, names(o, round)); d != "" {
			t.Errorf("round %d (-want +got):\n%s", round, d)
		}
	}
	all := 0
	for _, s := range Scenarios() {
		all += len(s.Forms)
		if s.Forms[0] != One {
			t.Errorf("scenario %s has nothing to compare with", s.Name)
		}
	}
	if n := len(names(Options{}, 0)); n != all {
		t.Errorf("%d cases, want %d", n, all)
	}
}

func TestPrograms(t *testing.T) {
	s := Scenario{QPS: 20, Burst: 30}
	words := command("/kubeconfig", "/pki", s)
	list := func(f Form) []program {
		t.Helper()
		out, err := programs(Case{s, f}, words, split.Verified)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	value := func(p program, flag string) (last string) {
		for _, word := range p.flags {
			if v, ok := strings.CutPrefix(word, "--"+flag+"="); ok {
				last = v // a later flag overrides
			}
		}
		return last
	}
	one := list(One)
	if len(one) != 1 || !slices.Equal(one[0].flags, words[1:]) {
		t.Errorf("one: %v", one)
	}
	for form, want := range map[Form][2]string{Three: {"20", "30"}, Thirds: {"6.67", "10"}} {
		groups := list(form)
		if len(groups) != 3 {
			t.Fatalf("%s: %v", form, groups)
		}
		for i, name := range []string{"workloads", "garbage", "cluster"} {
			g := groups[i]
			if g.name != name || value(g, "leader-elect-resource-name") != undivided+"-"+name {
				t.Errorf("%s, group %s: %v", form, name, g)
			}
			if got := [2]string{value(g, "kube-api-qps"), value(g, "kube-api-burst")}; got != want {
				t.Errorf("%s, group %s: QPS and burst %q, want %q", form, name, got, want)
			}
		}
		if !strings.Contains(value(groups[1], "controllers"), "garbage-collector-controller") {
			t.Errorf("%s: %v", form, groups[1])
		}
	}
}

func TestPinned(t *testing.T) {
	if got := pinned("", "a", "b"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("anywhere: %q", got)
	}
	if got := pinned("0,1", "a", "b"); !slices.Equal(got, []string{"taskset", "-c", "0,1", "a", "b"}) {
		t.Errorf("on two: %q", got)
	}
	path, err := pinnedBinary(t.TempDir(), "1", "/some where/kube")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if want := "#!/bin/sh\nexec taskset -c 1 '/some where/kube' \"$@\"\n"; err != nil || string(text) != want {
		t.Errorf("%v: %q, want %q", err, text, want)
	}
}

// TestDeployments: a change is done when its last Pod exists, and scaling counts the Pods from before.
func TestDeployments(t *testing.T) {
	const second = time.Second
	d := &deployments{pods: map[string]int{}, open: map[string][]change{
		"a": {{want: 2, sent: 10 * second}, {want: 4, sent: 20 * second}}, "b": {{want: 1, sent: 30 * second}},
	}}
	for i, name := range []string{"a", "a", "a"} {
		d.saw(name, time.Duration(20+i)*second)
	}
	if d.settled() == "" {
		t.Error("settled although Pods of a and b are missing")
	}
	took, waiting, err := d.take(40 * second)
	slices.Sort(waiting)
	if err != nil || !slices.Equal(took, []time.Duration{11 * second}) ||
		!slices.Equal(waiting, []time.Duration{10 * second, 20 * second}) {
		t.Errorf("took %v, waiting %v, %v", took, waiting, err)
	}
	if problem := d.settled(); problem != "" {
		t.Errorf("after take: %s", problem)
	}
	if _, _, err := d.take(40 * second); err == nil {
		t.Error("no error although nothing was changed")
	}
}

// TestNext: creations and scalings take turns, and only what exists is scaled.
func TestNext(t *testing.T) {
	d := &deployments{replicas: 2, pods: map[string]int{}, open: map[string][]change{}}
	var got []string
	for i := range 6 {
		name, n, scale := d.next(0)
		got = append(got, fmt.Sprintf("%s %d %t", name, n, scale))
		if i == 1 {
			d.created = []string{"web-00001", "web-00002"}
		}
	}
	want := []string{
		"web-00001 2 false", "web-00002 2 false", "web-00003 2 false", "web-00001 4 true", "web-00005 2 false", "web-00002 4 true",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestSince(t *testing.T) {
	const queue = `workqueue_queue_duration_seconds_`
	begin := reading{"kcm": stage.Metrics("process_cpu_seconds_total 2\n" + queue + `sum{name="deployment"} 1` + "\n" +
		queue + `count{name="deployment"} 10` + "\n")}
	end := reading{"kcm": stage.Metrics("process_cpu_seconds_total 5\nprocess_resident_memory_bytes 7\n" +
		queue + `sum{name="deployment"} 2` + "\n" + queue + `count{name="deployment"} 30` + "\n" +
		`workqueue_depth{name="deployment"} 4` + "\n" + `rest_client_requests_total{code="200"} 8` + "\n" +
		`rest_client_rate_limiter_duration_seconds_sum{verb="GET"} 3` + "\n")}
	want := map[string]Process{"kcm": {
		CPUSeconds: 3, Memory: 7, Requests: 8, Throttled: 3,
		Queues: map[string]Queue{"deployment": {Items: 20, Wait: 50, Depth: 4}},
	}}
	if d := cmp.Diff(want, end.since(begin)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestSpread(t *testing.T) {
	for want, values := range map[string][]float64{
		"0": nil, "12": {12}, "2.5 (1.0 to 4.0)": {4, 1}, "20 (0.50 to 300)": {300, 0.5, 20}, "7.0": {7.01, 6.99},
	} {
		if got := spreadOf(values).String(); got != want {
			t.Errorf("%v: %s, want %s", values, got, want)
		}
	}
}

// TestMarkdown: medians over the rounds, and the ratio of each round to one kube-controller-manager in it.
func TestMarkdown(t *testing.T) {
	result := func(f Form, round int, p99 float64) Result {
		w := Window{
			Seconds: 10, Changes: Latencies{Count: 80, P50: 20, P99: p99, Max: p99}, Unfinished: 1, Collected: 200,
			Calls: map[string]Latencies{"get": {P50: 1, P99: 2}},
			Processes: map[string]Process{
				apiServer: {CPUSeconds: 8}, "kcm": {CPUSeconds: 5, Requests: 100, Throttled: 1, Queues: map[string]Queue{
					"deployment": {Wait: 3}, "resourcequota_primary": {Items: 40},
				}},
			},
		}
		return Result{Scenario: "default", Form: f, Round: round, Quiet: w, Flood: w}
	}
	r := &Report{Results: []Result{
		result(One, 0, 300), result(Three, 0, 100), result(Three, 1, 200), result(One, 1, 400),
	}}
	got := r.Markdown()
	for _, want := range []string{
		"| default | one | 20 | 350 (300 to 400) | 20 | 350 (300 to 400) | 350 (300 to 400) | 1 | 2 of 160 | 20 | - |\n",
		"| default | three | 20 | 150 (100 to 200) | 20 | 150 (100 to 200) | 150 (100 to 200) | 2.5 (2.0 to 3.0) " +
			"| 2 of 160 | 20 | - |\n",
		"| default | one | no | 1.0 | 2.0 | 0 | 0 | 0 | 0 |\n",
		"| default | three | kcm | 0.50 | 0 | 10 | 10 | 0 | 3.0 | 0 | 0 | 0 | 4.0 |\n",
		"| default | one | apiserver | 0.80 | 0 |  |  |  |  |  |  |  |  |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no row %s", want)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(got), "\n") {
		if line != "" && !strings.HasSuffix(line, "|") {
			t.Errorf("not a row: %q", line)
		}
	}
}

// TestRun measures little, with the real programs: the default groups collect a small flood.
func TestRun(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("starts two control planes one after the other: only with SLOW=1")
	}
	o := Options{
		ConfigMaps: 90, Pods: 10, Rounds: 1, Quiet: 3 * time.Second, Flood: 3 * time.Second, Rate: 4, Replicas: 2, Calls: 4,
		Only: regexp.MustCompile("^fast/"), Output: filepath.Join(t.TempDir(), "split"), Progress: t.Output(),
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 2 {
		t.Fatalf("results: %+v", report.Results)
	}
	for _, res := range report.Results {
		f := res.Flood
		if f.Collected != 100 || f.CollectSeconds <= 0 || f.Unfinished != 0 || f.Changes.Count < 8 || f.Calls["create"].P99 <= 0 {
			t.Errorf("%s: %+v", res.Form, f)
		}
		for _, w := range []Window{res.Quiet, f} {
			if want := map[Form]int{One: 3, Three: 5}[res.Form]; len(w.Processes) != want {
				t.Errorf("%s: processes %+v, want %d", res.Form, w.Processes, want)
			}
			for name, p := range w.Processes {
				if p.CPUSeconds < 0 || p.Memory == 0 {
					t.Errorf("%s: %s: %+v", res.Form, name, p)
				}
			}
		}
		garbage := f.Processes[map[Form]string{One: undivided, Three: "garbage"}[res.Form]]
		if n := garbage.Queues["attempt_to_delete"].Items; n < 100 {
			t.Errorf("%s: %v objects went through the queue of the garbage collector, want 100", res.Form, n)
		}
	}
}
