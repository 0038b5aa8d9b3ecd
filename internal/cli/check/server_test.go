package check

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/test/require"
)

// apiServer answers as an API server does that has, or lacks, these.
type apiServer struct {
	gates     string // "" refuses to show metrics
	watchList int    // the status of a watch that asks for initial events
	policies  []string
}

func (a apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	status := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q}`, code, reason)
	}
	_, version, policies := strings.Cut(r.URL.Path, "/apis/admissionregistration.k8s.io/")
	switch {
	case policies:
		for _, v := range a.policies {
			if v == version {
				fmt.Fprintf(w, `{"kind": "APIResourceList", "groupVersion": "admissionregistration.k8s.io/%s", "resources": [
					{"name": "validatingadmissionpolicies", "kind": "ValidatingAdmissionPolicy", "verbs": ["get"]}]}`, v)
				return
			}
		}
		status(http.StatusNotFound, "NotFound")
	case r.URL.Path == "/metrics" && a.gates != "":
		for gate := range strings.FieldsSeq(a.gates) {
			name, value, _ := strings.Cut(gate, "=")
			fmt.Fprintf(w, "kubernetes_feature_enabled{name=%q,stage=\"BETA\"} %s\n", name, value)
		}
	case r.URL.Path != "/api/v1/namespaces/operators/configmaps":
		status(http.StatusForbidden, "Forbidden")
	case a.watchList == http.StatusUnprocessableEntity:
		status(a.watchList, "Invalid")
	case a.watchList != http.StatusOK:
		status(a.watchList, "Forbidden")
	case r.URL.Query().Get("sendInitialEvents") == "true":
		fmt.Fprintln(w, `{"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
			"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}}`)
	}
}

func (a apiServer) run(t *testing.T) (*run, *discovery.DiscoveryClient) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	r := &run{client: client, lines: map[string][]Line{}}
	r.Rota = types.NamespacedName{Namespace: "operators", Name: "web"}
	return r, discovery.NewDiscoveryClient(client.CoreV1().RESTClient())
}

func texts(lines []Line) (out []string) {
	for _, l := range lines {
		out = append(out, string(l.Level)+" "+strings.Join(strings.Fields(l.Text)[:5], " "))
	}
	return out
}

// TestServersThatLack: what costs more is told, and nothing where nothing does; what nobody may ask is, with --pre.
func TestServersThatLack(t *testing.T) {
	const ok, off = http.StatusOK, http.StatusUnprocessableEntity
	pages, watches := "ok the API server reads lists", "ok the API server has WatchList"
	for name, c := range map[string]struct {
		server apiServer
		want   []string
	}{
		"1.30": {apiServer{gates: "ConsistentListFromCache=0 Other=1", watchList: off}, []string{"warning the API server reads lists", watches}},
		"1.31": {apiServer{gates: "ConsistentListFromCache=1", watchList: off}, []string{pages, watches}},
		"1.32": {apiServer{gates: "ConsistentListFromCache=1", watchList: ok}, []string{pages}},
		"1.33": {apiServer{gates: "ConsistentListFromCache=1 ListFromCacheSnapshot=0", watchList: off}, []string{pages, watches}},
		"1.34": {apiServer{gates: "ConsistentListFromCache=1 ListFromCacheSnapshot=1", watchList: ok}, nil},
		"1.37": {apiServer{gates: "ListFromCacheSnapshot=1", watchList: ok}, nil},
		"refuses": {apiServer{watchList: http.StatusForbidden}, []string{
			"warning not known: whether the API", "warning not known: whether the API",
		}},
	} {
		for _, pre := range []bool{true, false} {
			r, _ := c.server.run(t)
			r.Pre = pre
			r.features(t.Context())
			want := c.want
			if !pre && name == "refuses" {
				want = nil
			}
			if diff := cmp.Diff(want, texts(r.lines[groupCluster])); diff != "" {
				t.Errorf("%s, --pre %v (-want +got):\n%s", name, pre, diff)
			}
		}
	}
}

// TestFencesNeedV1: servers of before 1.30 may have the policies in a beta version, which is not enough.
func TestFencesNeedV1(t *testing.T) {
	for _, c := range []struct {
		served []string
		want   string
	}{
		{[]string{"v1", "v1beta1"}, ""}, {[]string{"v1"}, ""},
		{[]string{"v1beta1", "v1alpha1"}, "admissionregistration.k8s.io/v1, only of v1beta1: a fence is not possible"},
		{[]string{"v1alpha1"}, "only of v1alpha1: a fence"}, {nil, "admissionregistration.k8s.io/v1: a fence is not possible"},
	} {
		r, disco := apiServer{policies: c.served}.run(t)
		r.policies(disco)
		lines := r.lines[groupCluster]
		switch {
		case c.want == "" && len(lines) > 0, c.want != "" && len(lines) != 1:
			t.Errorf("served %v: %v", c.served, lines)
		case c.want != "" && (lines[0].Level != Warning || !strings.Contains(lines[0].Text, c.want)):
			t.Errorf("served %v: %v, want %q", c.served, lines[0], c.want)
		}
	}
}

// TestTried: the versions that `rota check` claims are those that passed, by docs/versions.md.
func TestTried(t *testing.T) {
	text, err := os.ReadFile("../../../docs/versions.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(text), "\n### What was tried\n")
	table, _, _ = strings.Cut(table, "\n### ")
	var passed []string
	for _, row := range regexp.MustCompile(`(?m)^\| v(\d+\.\d+)\.\d+ \|.*$`).FindAllStringSubmatch(table, -1) {
		if !strings.Contains(row[0], "**no**") && strings.Contains(row[0], " 0, 0, 0, 0 ") {
			passed = append(passed, row[1])
		}
	}
	require.Equal(t, "what is tried", passed, Tried)
}

func TestVersionsThatWereNotTried(t *testing.T) {
	last := Tried[len(Tried)-1]
	for version, want := range map[string]string{
		"v" + Tried[0] + ".0": "", "v" + last + ".14-gke.1002000": "", "v" + last + ".2+k3s1": "", "nobody's": "",
		"v1.30.14": "not been tried on Kubernetes 1.30", "v1.99.0-alpha.1": "not been tried on Kubernetes 1.99",
		"v2.0.0": "not been tried on Kubernetes 2.0",
	} {
		r := &run{lines: map[string][]Line{}}
		r.tried(version)
		lines := r.lines[groupCluster]
		if (want == "") != (len(lines) == 0) || want != "" && !strings.Contains(lines[0].Text, want) {
			t.Errorf("%s: %v, want %q", version, lines, want)
		}
	}
}
