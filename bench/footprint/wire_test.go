package footprint

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestRequest(t *testing.T) {
	for url, want := range map[string]string{
		"GET /api/v1/configmaps":                                                        "list configmaps",
		"GET /api/v1/configmaps?watch=true&x=y":                                         "watch configmaps",
		"GET /apis/web.example.com/v1/namespaces/a/websites/b":                          "get websites",
		"PUT /apis/web.example.com/v1/namespaces/a/websites/b/status":                   "update websites",
		"PATCH /apis/apps/v1/namespaces/a/deployments/b":                                "patch deployments",
		"GET /api/v1/namespaces/" + operatorNamespace + "/configmaps/x":                 "get table",
		"GET /api/v1/namespaces/" + operatorNamespace + "/configmaps?watch=1":           "watch table",
		"POST /apis/coordination.k8s.io/v1/namespaces/" + operatorNamespace + "/leases": "create leases",
		"GET /api/v1/namespaces/a":                                                      "get namespaces",
		"GET /apis/apps/v1":                                                             "get discovery",
		"GET /version":                                                                  "get discovery",
	} {
		method, path, _ := strings.Cut(url, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "https://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := request(r); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
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
