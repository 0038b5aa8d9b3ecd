package ctrlrt_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// Objects that requeue themselves all the time do not keep a worker from those that came with a slot.
func TestArrivalsGetTurns(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	const n = 20
	for i := range n {
		for _, kind := range []string{"busy", "calm"} {
			require.NoError(t, c.Create(t.Context(), configMap(namespace, fmt.Sprintf("%s-%d", kind, i), "1")))
		}
	}
	cfg := controlplane.For(t).Config()
	r, err := rota.New(cfg, rota.Options{Solo: true, Namespace: namespace, Logger: testLogger(t, "solo")})
	require.NoError(t, err)
	o := managerOptions()
	o.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	mgr, err := ctrlrt.NewManager(cfg, r, o)
	require.NoError(t, err)
	calm := make(chan string, n)
	priority := true
	err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{UsePriorityQueue: &priority}).
		Complete(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			switch {
			case strings.HasPrefix(req.Name, "busy"):
				time.Sleep(time.Millisecond) // with so many of them, another one is always waiting
				return reconcile.Result{RequeueAfter: time.Nanosecond}, nil
			case strings.HasPrefix(req.Name, "calm"):
				calm <- req.Name
			}
			return reconcile.Result{}, nil
		}))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	limit := time.After(2 * time.Minute)
	for seen := range n {
		select {
		case <-calm:
		case err := <-ended:
			t.Fatalf("the manager ended: %v", err)
		case <-limit:
			t.Fatalf("%d of %d calm objects had a turn", seen, n)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}
}
