package controller

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// TestKinds: kinds that the API server does not serve are refused at the start, with what to do.
func TestKinds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/example.com/v1" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[
			{"name":"shops/status","kind":"Shop","namespaced":true,"verbs":["get"]},
			{"name":"shops","kind":"Shop","namespaced":true,"verbs":["get","list","watch"]},
			{"name":"regions","kind":"Region","verbs":["list","watch"]},
			{"name":"reviews","kind":"Review","verbs":["create"]}]}`))
	}))
	t.Cleanup(server.Close)
	client := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL})
	for _, c := range []struct{ apiVersion, kind, namespace, want string }{
		{"example.com/v1", "Shop", "north", ""},
		{"example.com/v1", "Region", "", ""},
		{"example.com/v1", "Region", "north", "it is not namespaced: remove its namespaces"},
		{"example.com/v1", "Review", "", "no such kind to watch: correct the spelling"},
		{"example.com/v1", "shop", "", "no such kind to watch: correct the spelling"},
		{"example.org/v1", "Shop", "", "install it, or remove the entry"},
	} {
		k := config.Kind{APIVersion: c.apiVersion, Kind: c.kind, Events: []notice.Type{notice.Created}}
		if c.namespace != "" {
			k.Namespaces = []string{c.namespace}
		}
		kinds, err := Kinds(&config.Config{Kinds: []config.Kind{k}}, client)
		if c.want == "" {
			if err != nil || kinds[0].resource.Resource != strings.ToLower(c.kind)+"s" || kinds[0].follows("south") != (c.namespace == "") {
				t.Errorf("%+v: %+v, %v", c, kinds, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.kind) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := OpenRecords(&rest.Config{}, nil, "", "notify"); err == nil || !strings.Contains(err.Error(), "set POD_NAMESPACE") {
		t.Errorf("without a namespace: %v", err)
	}
}
