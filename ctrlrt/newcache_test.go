package ctrlrt_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// A member whose cache holds no share of a kind would join, be ready, and not reconcile because of that kind.
func TestCacheWithoutShares(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		newCache cache.NewCacheFunc
		kind     string
	}{
		{"primary", func(cfg *rest.Config, given cache.Options) (cache.Cache, error) {
			given.NewInformer = nil
			return cache.New(cfg, given)
		}, ""}, // whichever kind comes first
		{"owned", func(cfg *rest.Config, given cache.Options) (cache.Cache, error) {
			share := given.NewInformer
			given.NewInformer = func(lw toolscache.ListerWatcher, obj runtime.Object, resync time.Duration,
				indexers toolscache.Indexers) toolscache.SharedIndexInformer {
				if _, owned := obj.(*corev1.Secret); owned {
					return toolscache.NewSharedIndexInformer(lw, obj, resync, indexers)
				}
				return share(lw, obj, resync, indexers)
			}
			return cache.New(cfg, given)
		}, "Secret"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			mgr := newMember(t, controlplane.For(t).Config(), controlplane.Namespace(t), "a", rota.Options{},
				func(o *ctrl.Options) { o.NewCache = test.newCache })
			require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
				Complete(nothing))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it works on where it is not refused
			defer cancel()
			require.ErrorSays(t, mgr.Start(ctx), `"configmap"`, "informer of "+test.kind, "NewCache", "NewInformer")
		})
	}
}

// What NewCache changes of the options shows in the cache alone. The first answer in place of the cache says so.
func TestNewCacheIsNotKnownToLiveAnswers(t *testing.T) {
	t.Parallel()
	c, namespace, other := adminClient(t), controlplane.Namespace(t), controlplane.Namespace(t)
	for _, in := range []string{namespace, other} {
		cm := configMap(in, "object", "1")
		cm.Labels = map[string]string{"test": namespace}
		require.NoError(t, c.Create(t.Context(), cm))
	}
	for _, made := range []bool{true, false} {
		t.Run(fmt.Sprint("NewCache: ", made), func(t *testing.T) {
			h, want := &heard{}, 1
			mgr := newMember(t, controlplane.For(t).Config(), namespace, "solo", rota.Options{Solo: true}, func(o *ctrl.Options) {
				o.Logger = funcr.New(h.write, funcr.Options{})
				if made {
					want = 2 // the answer that the line is about
					o.Cache.DefaultNamespaces = nil
					o.NewCache = func(cfg *rest.Config, given cache.Options) (cache.Cache, error) {
						given.DefaultNamespaces = map[string]cache.Config{namespace: {}}
						return cache.New(cfg, given)
					}
				}
			})
			require.NoError(t, ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(nothing))
			for range 2 {
				var list corev1.ConfigMapList
				if err := mgr.GetClient().List(t.Context(), &list, client.MatchingLabels{"test": namespace}); err != nil ||
					len(list.Items) != want {
					t.Errorf("List from outside: %d objects, error %v, want %d", len(list.Items), err, want)
				}
			}
			if n := h.count("in place of the cache", "NewCache", "Cache in the manager's options"); (n == 1) != made || n > 1 {
				t.Errorf("told %d times that what NewCache changes is not known, in: %q", n, h.lines)
			}
		})
	}
}

// The caller's options are not what the two clients have in common.
func TestWholeHasItsOwnOptions(t *testing.T) {
	cfg := &rest.Config{Host: "https://127.0.0.1:1"}
	r, err := rota.New(cfg, rota.Options{Name: "x", Namespace: "y", Identity: rota.Identity{Pod: "p"}})
	require.NoError(t, err)
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
	require.NoError(t, err)
	whole, err := mgr.Whole()
	require.NoError(t, err)
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
