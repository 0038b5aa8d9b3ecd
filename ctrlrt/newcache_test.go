package ctrlrt_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/controlplane"
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
		}, "ConfigMap"},
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
			cfg, namespace := controlplane.For(t).Config(), controlplane.Namespace(t)
			r, err := rota.New(cfg, rota.Options{Name: "test", Namespace: namespace, Logger: testLogger(t, "a")})
			if err != nil {
				t.Fatal(err)
			}
			o := managerOptions()
			o.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
			o.NewCache = test.newCache
			mgr, err := ctrlrt.NewManager(cfg, r, o)
			if err != nil {
				t.Fatal(err)
			}
			if err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
				Complete(nothing); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it works on where it is not refused
			defer cancel()
			wantError(t, mgr.Start(ctx), `"configmap"`, "informer of "+test.kind, "NewCache", "NewInformer")
		})
	}
}

// A cache of the options that NewCache is given holds shares, whatever else it changes.
func TestCacheWithShares(t *testing.T) {
	t.Parallel()
	cfg, namespace := controlplane.For(t).Config(), controlplane.Namespace(t)
	r, err := rota.New(cfg, rota.Options{Name: "test", Namespace: namespace, Logger: testLogger(t, "a"),
		LeaseDuration: leaseDuration, RetryPeriod: leaseDuration / 10})
	if err != nil {
		t.Fatal(err)
	}
	o := managerOptions()
	o.NewCache = func(cfg *rest.Config, given cache.Options) (cache.Cache, error) {
		given.DefaultNamespaces = map[string]cache.Config{namespace: {}}
		return cache.New(cfg, given)
	}
	mgr, err := ctrlrt.NewManager(cfg, r, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
		Complete(nothing); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := &replica{Manager: mgr, stop: cancel, done: make(chan error, 1)}
	go func() { m.done <- mgr.Start(ctx) }()
	t.Cleanup(func() { m.leave(t) })
	eventually(t, 30*time.Second, settled(m))
}
