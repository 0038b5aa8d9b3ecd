package writes

import (
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
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
		share := delivery.New(delivery.Options{Slots: 256, Key: slot.KeyName, Mode: sharding.Filter})
		require.NoError(t, share.Shard(schema.GroupKind{Kind: "Secret"}))
		w := New(Env{Share: share})
		for _, c := range test.read {
			w.resources.reads(schema.GroupResource{Resource: "secrets"}, c)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete,
			"https://10.0.0.1/api/v1/namespaces/a/secrets/b", http.NoBody)
		require.NoError(t, err)
		if noted := w.noting(req, work.Admitted{Slot: 3}, false, home) != nil; noted != test.noted {
			t.Errorf("%s: noted %t, want %t", name, noted, test.noted)
		}
	}
}
