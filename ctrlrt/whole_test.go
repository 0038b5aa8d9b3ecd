package ctrlrt_test

import (
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
)

// The caller's options are not what the two clients have in common.
func TestWholeHasItsOwnOptions(t *testing.T) {
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	r, err := rota.New(cfg, rota.Options{Name: "x", Namespace: "y", Identity: rota.Identity{Pod: "p"}})
	noError(t, err)
	var readers []client.Reader
	var caches []cache.Cache
	var clients []*http.Client
	mine := &http.Client{}
	mgr, err := ctrlrt.NewManager(cfg, r, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}, HTTPClient: mine},
		NewCache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			c, err := cache.New(cfg, o)
			caches = append(caches, c)
			return c, err
		},
		NewClient: func(cfg *rest.Config, o client.Options) (client.Client, error) {
			readers = append(readers, o.Cache.Reader)
			clients = append(clients, o.HTTPClient)
			return client.New(cfg, o)
		},
	})
	noError(t, err)
	whole, err := mgr.Whole()
	noError(t, err)
	if readers[1] == client.Reader(caches[0]) {
		t.Error("Whole's client reads from the cache that holds the share")
	}
	if readers[1] != client.Reader(whole.GetCache()) {
		t.Error("Whole's client does not read from Whole's cache")
	}
	if clients[0] == mine {
		t.Error("the manager's client writes with the user's HTTP client, past the deadline")
	}
}
