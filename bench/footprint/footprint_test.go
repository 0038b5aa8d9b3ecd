package footprint

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/bench/cluster"
)

// The test binary is also the replicas'.
func TestMain(m *testing.M) {
	if os.Getenv(EnvOperator) != "" {
		os.Exit(OperatorMain())
	}
	os.Exit(m.Run())
}

// TestRun measures little, and looks whether the result is complete and roughly right. With SLOW=1 (make check
// WHAT=slow) it compares two members with one.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	t.Parallel() // they wait most of the time
	const objects = 180
	members := []int{2}
	if os.Getenv("SLOW") != "" {
		members = []int{1, 2}
	}
	o := Options{
		Objects: objects, JoinObjects: objects, Members: members, Deliveries: []Form{"filter"}, Rate: 30, Window: time.Second,
		Creates: 10, CreateRate: 10, Lease: 3 * time.Second, Quiet: 500 * time.Millisecond, Only: regexp.MustCompile(`idle/filter/2|steady`),
		Output: filepath.Join(t.TempDir(), "memory.md"), Progress: t.Output(), keep: true,
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Cases() {
		res := report.find(c)
		if res == nil {
			t.Fatalf("no result of %s", c)
		}
		if len(res.Replicas) != c.Members || res.Quiet.Heap == 0 || res.Quiet.Watches <= 0 {
			t.Errorf("%s: %d replicas, %+v", c, len(res.Replicas), res.Quiet)
		}
		// The servers tell hundredths of a second; with idle replicas it may be none.
		if w := res.Window; w.Seconds <= 0 || c.What == Steady && (w.ServerSeconds <= 0 || w.EtcdSeconds <= 0) {
			t.Errorf("%s: %+v", c, w)
		}
		for _, p := range res.Replicas {
			if p.LiveHeap == 0 || p.Start.PeakHeap == 0 || p.Start.Bytes == 0 || p.Window.CPUSeconds <= 0 || p.Role != roleStandby && p.Watches < 5 {
				t.Errorf("%s: %+v", c, p)
			}
		}
		if c.What == Idle {
			continue
		}
		if n := sum(res.values("", cached)); n < 4*objects || n > 4*objects+20 { // and what else a stock replica sees
			t.Errorf("%s: %v objects cached, want %d", c, n, 4*objects)
		}
		if size := res.Sizes["websites"]; math.Abs(float64(size-cluster.WebsiteBytes)) > cluster.WebsiteBytes/20 {
			t.Errorf("%s: Websites have %d bytes, want %d", c, size, cluster.WebsiteBytes)
		}
	}
	// To save time the idle one is of two.
	idle := report.find(Case{Idle, "filter", 2}).mean(roleMember, liveHeap)
	two := report.find(Case{Steady, "filter", 2}).mean(roleMember, liveHeap) - idle
	if two <= 0 {
		t.Errorf("members with half of the objects each have %.0f bytes more on the heap than with none", two)
	}
	if len(members) == 2 {
		one := report.find(Case{Steady, "filter", 1}).mean(roleMember, liveHeap) - idle
		if part := two / one; part < 0.35 || part > 0.72 {
			t.Errorf("the live heap of one of two members is %.2f of one's, want about 0.5, and something for its connections", part)
		}
	}
	if stock := report.find(Case{Steady, Stock, 2}); len(stock.values(roleActive, liveHeap)) != 1 || len(stock.values(roleStandby, liveHeap)) != 1 {
		t.Errorf("leader election: %+v", stock.Replicas)
	}
	page, err := os.ReadFile(o.Output)
	if err != nil || strings.Count(string(page), "| Filter | 2 | member |") != 3 {
		t.Errorf("%v:\n%s", err, page)
	}
	if again, err := load(resultsPath(o.Output), o.parameters()); err != nil || len(again.Results) != len(report.Results) {
		t.Errorf("%v: %+v", err, again)
	}
}

// TestLatencyAndJoin: the other two measurements.
func TestLatencyAndJoin(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not under -short")
	}
	t.Parallel() // they wait most of the time
	o := Options{
		Objects: 60, JoinObjects: 60, Deliveries: []Form{"filter"}, Rate: 30, Window: time.Second, Creates: 20, CreateRate: 20,
		Lease: 3 * time.Second, Quiet: 500 * time.Millisecond, Only: regexp.MustCompile(`latency|join`),
		Output: filepath.Join(t.TempDir(), "memory.md"), Progress: t.Output(), keep: true,
	}
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	join := report.find(Case{Join, "filter", joined})
	if len(join.Replicas) != joined+1 || join.Moved < 4*5 || join.Moved > 4*30 || join.Base == nil {
		t.Errorf("%+v", join)
	}
	row := report.joinRows()[0]
	if row.Received < 4*60 || row.Lists < 4 || row.Writes > 0 || row.Coordination < 1 || row.Bytes <= 0 {
		t.Errorf("%+v", row)
	}
	delays := report.find(Case{Latency, "filter", joined}).Delays
	if len(delays) != 2 || delays[0].Creates != 20 || delays[0].P50 <= 0 || delays[1].P99 < delays[1].P50 || delays[0].Writes < 3 {
		t.Errorf("%+v", delays)
	}
}

func TestPercentile(t *testing.T) {
	var values []time.Duration
	for i := 100; i > 0; i-- {
		values = append(values, time.Duration(i)*time.Millisecond)
	}
	if p50, p99 := percentile(values, 50), percentile(values, 99); p50 != 50 || p99 != 99 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if one := percentile(values[:1], 99); one != 100 {
		t.Errorf("of one value: %v", one)
	}
}
