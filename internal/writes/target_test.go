package writes

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func TestTargetOf(t *testing.T) {
	name := func(namespace, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	core, apps := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "apps", Version: "v1"}
	for path, want := range map[string]target{
		"/api/v1/namespaces/a/pods":                      {core, "pods", name("a", ""), ""},
		"/api/v1/namespaces/a/pods/b":                    {core, "pods", name("a", "b"), ""},
		"/api/v1/namespaces/a/pods/b/status":             {core, "pods", name("a", "b"), "status"},
		"/api/v1/namespaces/a/pods/b/proxy/x/y":          {core, "pods", name("a", "b"), "proxy/x/y"},
		"/api/v1/nodes/n":                                {core, "nodes", name("", "n"), ""},
		"/api/v1/namespaces":                             {core, "namespaces", name("", ""), ""},
		"/api/v1/namespaces/a":                           {core, "namespaces", name("", "a"), ""},
		"/api/v1/namespaces/a/finalize":                  {core, "namespaces", name("", "a"), "finalize"},
		"/api/v1/namespaces/a/status":                    {core, "namespaces", name("", "a"), "status"},
		"/api/v1/namespaces/api/configmaps/v1":           {core, "configmaps", name("api", "v1"), ""},
		"/apis/apps/v1/namespaces/a/deployments/b/scale": {apps, "deployments", name("a", "b"), "scale"},
		"/apis/web.example.com/v1beta1/namespaces/a/sites/b": {
			schema.GroupVersion{Group: "web.example.com", Version: "v1beta1"}, "sites", name("a", "b"), "",
		},
	} {
		for prefix, in := range map[string]cluster{
			"":                  {host: "example.com"},
			"/k8s/clusters/c-1": {host: "example.com", path: "k8s/clusters/c-1"},
			"/k8s/clusters/c-2": {},
			"/k8s/clusters/c-3": {host: "example.com", path: "other"},
			"/api/v1/namespaces/vc/services/https:vc:443/proxy": {},
			"/apis/cluster.karmada.io/v1alpha1/clusters/m/proxy": {
				host: "example.com", path: "apis/cluster.karmada.io/v1alpha1/clusters/m/proxy",
			},
		} {
			got, ok := in.target(put(t, prefix+path))
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(target{})); !ok || diff != "" {
				t.Errorf("%s of %+v: %v (-want +got):\n%s", prefix+path, in, ok, diff)
			}
		}
	}
	for _, path := range []string{"/", "/version", "/api", "/api/v1", "/apis/apps/v1", "/healthz/api/x"} {
		for _, in := range []cluster{{}, {host: "example.com"}} {
			if got, ok := in.target(put(t, path)); ok {
				t.Errorf("%s of %+v: %+v, want none", path, in, got)
			}
		}
	}
	// A call of an application that has the API's paths: the config says where the API begins.
	const call = "/api/v1/namespaces/a/services/b/proxy/api/v1/orders"
	want := target{core, "services", name("a", "b"), "proxy/api/v1/orders"}
	if got, ok := (cluster{host: "example.com"}).target(put(t, call)); !ok || got != want {
		t.Errorf("%s: %+v, %v", call, got, ok)
	}
}

func put(t *testing.T, path string) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), http.MethodPut, "https://example.com"+path, http.NoBody)
}
