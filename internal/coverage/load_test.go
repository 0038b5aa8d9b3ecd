package coverage_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/coverage"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// A report has the loads of all slots as long as these take little space. Otherwise neighbors are summed up, and nothing
// is lost of the sum.
func TestLoadsAreBounded(t *testing.T) {
	for _, slots := range []int{0, 3, 1000, slot.MaxCount} {
		by := map[slot.Slot]float64{7: 0.0004} // less than a thousandth
		for i := range slots {
			by[slot.Slot(i)] = 0.001 + float64(i%700)/1000
		}
		r := &coverage.Report{Member: "a", Fold: 1, Digests: coverage.Digests{}, Loads: coverage.LoadsOf(by)}
		data := encode(t, r)
		if n := len(data["loads"]); n > 16<<10 {
			t.Errorf("%d slots: the loads take %d bytes", slots, n)
		}
		back, err := coverage.Decode(data)
		require.NoError(t, err)
		want, _ := r.Load()
		if got, ok := back.Load(); !ok || math.Abs(got-want) > 0.001*float64(len(back.Loads)+1) {
			t.Errorf("%d slots: load %v, known: %t, want %v", slots, got, ok, want)
		}
		if slots <= 1000 {
			if d := cmp.Diff(r.Loads, back.Loads, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); d != "" {
				t.Errorf("%d slots (-sent +read):\n%s", slots, d)
			}
		}
	}
}

// What an older build does not report is not 0.
func TestLoadsOfOlderBuilds(t *testing.T) {
	data := encode(t, &coverage.Report{Member: "a", Fold: 1, Digests: coverage.Digests{}})
	back, err := coverage.Decode(data)
	require.NoError(t, err)
	if workers, ok := back.Load(); ok {
		t.Errorf("load %v of a report that does not say, want that it is not known", workers)
	}
}

func TestWrongLoads(t *testing.T) {
	for _, text := range []string{"7", "7 x", "7 -1", "9-8 1", "x 1", "7 1\n7 1", "8 1\n7 1", "0-5 1\n5 1", "99999 1"} {
		data := encode(t, &coverage.Report{Member: "a", Fold: 1, Digests: coverage.Digests{}})
		data["loads"] = text
		_, err := coverage.Decode(data)
		require.ErrorSays(t, err, "loads")
	}
}

// What reports say of the hottest objects comes back, as far as it fits, and bad lines are named.
func TestHottestObjects(t *testing.T) {
	website := schema.GroupKind{Group: "web.example.com", Kind: "Website"}
	hot := func(name string, workers float64) coverage.HotObject {
		return coverage.HotObject{Controller: "web site", Kind: website, Object: types.NamespacedName{Namespace: "a", Name: name}, Slot: 7, Workers: workers}
	}
	r := &coverage.Report{Member: "a", Digests: coverage.Digests{}, Hottest: []coverage.HotObject{hot("x", 0.81), hot("y", 0.012)}}
	text, err := r.Encode()
	require.NoError(t, err)
	got, err := coverage.Decode(text)
	if err != nil || !slices.Equal(got.Hottest, r.Hottest) {
		t.Errorf("%v, error %v, want %v", got.Hottest, err, r.Hottest)
	}
	for range 200 {
		r.Hottest = append(r.Hottest, hot(strings.Repeat("z", 200), 0.01))
	}
	long, err := r.Encode()
	require.NoError(t, err)
	if n := len(long["hottest"]); n > 4<<10 || n < 3<<10 {
		t.Errorf("%d bytes", n)
	}
	if !coverage.Alike(text, long) {
		t.Error("reports that differ in nothing but the hottest objects are published at once")
	}
	for _, line := range []string{"Website", `Website "a" 1 2 "c"`, `Website "a/b" x 2 "c"`, `Website "a/b" 1 -2 "c"`, `Website "a/b" 1 2 "c`} {
		text["hottest"] = line
		_, err := coverage.Decode(text)
		require.ErrorSays(t, err, "field hottest, line 1")
	}
}
