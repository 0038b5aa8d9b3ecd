package rota

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/slot"
)

// What is written in another cluster than that of the informers is not noted as if it were one of their objects.
func TestWritesInOtherClustersAreNotNoted(t *testing.T) {
	config := func(host, authority string) cluster {
		return clusterOf(&rest.Config{Host: host, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(authority)}})
	}
	home := config("https://10.0.0.1", "home")
	for name, test := range map[string]struct {
		read  []cluster
		noted bool
	}{
		"the same":                   {[]cluster{home}, true},
		"another host":               {[]cluster{config("https://home.example.com", "home")}, true},
		"another authority":          {[]cluster{config("https://10.0.0.1:443", "new")}, true},
		"another cluster":            {[]cluster{config("https://10.1.0.1", "spoke")}, false},
		"two clusters, one the same": {[]cluster{config("https://10.1.0.1", "spoke"), home}, true},
		"authorities of the system":  {[]cluster{config("https://10.1.0.1", "")}, true},
		"a transport of their own":   {[]cluster{{}}, true},
		"not read yet":               {nil, true},
	} {
		r := testRota(t)
		if err := r.Shard(secretKind); err != nil {
			t.Fatal(err)
		}
		for _, c := range test.read {
			r.resources.reads(schema.GroupResource{Resource: "secrets"}, c)
		}
		req, err := http.NewRequestWithContext(r.withSlot(t.Context(), slot.Slot(3)), http.MethodDelete,
			"https://10.0.0.1/api/v1/namespaces/a/secrets/b", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if noted := r.noting(req, false, home) != nil; noted != test.noted {
			t.Errorf("%s: noted %t, want %t", name, noted, test.noted)
		}
	}
}
