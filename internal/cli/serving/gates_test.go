package serving

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rota-dev/rota/test/require"
)

// TestParseGates: metrics.txt is cut from the metrics of an API server of v1.36.3.
func TestParseGates(t *testing.T) {
	recorded, err := os.Open("testdata/metrics.txt")
	require.NoError(t, err)
	defer recorded.Close()
	got, err := parseGates(recorded)
	want := Gates{GateConsistentLists: true, GatePages: true, "CBORServingAndStorage": false}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err = parseGates(strings.NewReader("up 1\n")); len(got) != 0 || err != nil {
		t.Errorf("no gates: %v, %v", got, err)
	}
}

func TestWhatGatesSay(t *testing.T) {
	for name, c := range map[string]struct {
		gates          Gates
		off, firstOnly bool
	}{
		"1.30":         {Gates{GateConsistentLists: false}, true, false},
		"1.31":         {Gates{GateConsistentLists: true}, false, true},
		"1.33":         {Gates{GateConsistentLists: true, GatePages: false}, false, true},
		"1.34":         {Gates{GateConsistentLists: true, GatePages: true}, false, false},
		"1.37":         {Gates{GatePages: true}, false, false},
		"neither left": {Gates{"Other": true}, false, false},
		"not readable": {nil, false, false},
	} {
		if off, first := c.gates.Off(GateConsistentLists), c.gates.FirstPageOnly(); off != c.off || first != c.firstOnly {
			t.Errorf("%s: off %v, only the first page %v", name, off, first)
		}
	}
}
