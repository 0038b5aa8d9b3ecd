package meter

import (
	"net/http"
	"strings"
	"testing"
)

func TestRequest(t *testing.T) {
	const namespace = "operators"
	for url, want := range map[string]string{
		"GET /api/v1/configmaps":                                                "list configmaps",
		"GET /api/v1/configmaps?watch=true&x=y":                                 "watch configmaps",
		"GET /apis/web.example.com/v1/namespaces/a/websites/b":                  "get websites",
		"PUT /apis/web.example.com/v1/namespaces/a/websites/b/status":           "update websites",
		"PATCH /apis/apps/v1/namespaces/a/deployments/b":                        "patch deployments",
		"GET /api/v1/namespaces/" + namespace + "/configmaps/x":                 "get table",
		"GET /api/v1/namespaces/" + namespace + "/configmaps?watch=1":           "watch table",
		"POST /apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases": "create leases",
		"GET /api/v1/namespaces/a":                                              "get namespaces",
		"GET /apis/apps/v1":                                                     "get discovery",
		"GET /version":                                                          "get discovery",
	} {
		method, path, _ := strings.Cut(url, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, "https://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := request(r, namespace); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
