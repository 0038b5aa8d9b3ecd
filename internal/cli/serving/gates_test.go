package serving

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is cut from the metrics of an API server of v1.36.3.
const recorded = `# TYPE kube_apiserver_pod_logs_insecure_backend_total counter
kube_apiserver_pod_logs_insecure_backend_total{usage="name=\"x\""} 1
# HELP kubernetes_build_info [ALPHA] A metric with a constant '1' value labeled by major, minor, git version.
# TYPE kubernetes_build_info gauge
kubernetes_build_info{build_date="1970-01-01T00:00:00Z",git_version="v1.36.3",go_version="go1.26.8",major="1",minor="36"} 1
# HELP kubernetes_feature_enabled [BETA] This metric records the data about the stage and enablement of a k8s feature.
# TYPE kubernetes_feature_enabled gauge
kubernetes_feature_enabled{name="ConsistentListFromCache",stage=""} 1
kubernetes_feature_enabled{name="ListFromCacheSnapshot",stage="BETA"} 1
kubernetes_feature_enabled{name="CBORServingAndStorage",stage="ALPHA"} 0
# HELP node_authorizer_graph_actions_duration_seconds [ALPHA] Histogram of duration of graph actions in node authorizer.
node_authorizer_graph_actions_duration_seconds_bucket{operation="AddPod",le="0.0001"} 3
kubernetes_feature_enabled{name="TooLate",stage="BETA"} 1
`

func TestParseGates(t *testing.T) {
	got, err := parseGates(strings.NewReader(recorded))
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
