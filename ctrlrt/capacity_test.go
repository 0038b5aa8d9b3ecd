package ctrlrt_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// Five members do at least 4.5 times what one does, if reconciles only wait: what Rota adds to a reconcile does not grow
// with the members.
func TestCapacity(t *testing.T) {
	const (
		objects, members = 400, 5
		takes, window    = 50 * time.Millisecond, 10 * time.Second
	)
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for i := range objects {
		require.NoError(t, c.Create(t.Context(), configMap(namespace, fmt.Sprint("object-", i), "1")))
	}
	var reconciles atomic.Int64
	start := func(pod string) *replica {
		return startMember(t, namespace, pod, rota.Options{}, func(mgr *ctrlrt.Manager) error {
			return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
				func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					defer reconciles.Add(1)
					time.Sleep(takes)
					return reconcile.Result{RequeueAfter: time.Millisecond}, mgr.GetClient().Get(ctx, req.NamespacedName, &corev1.ConfigMap{})
				}))
		})
	}
	rate := func() float64 {
		before, begun := reconciles.Load(), time.Now()
		time.Sleep(window)
		return float64(reconciles.Load()-before) / time.Since(begun).Seconds()
	}
	running := []*replica{start("a")}
	eventually(t, time.Minute, settled(running...))
	one := rate()
	for i := range members - 1 {
		running = append(running, start(string(rune('b'+i))))
	}
	eventually(t, time.Minute, settled(running...))
	all := rate()
	t.Logf("reconciles of %s each: one member %.0f per second, %d members %.0f, %.2f times as many", takes, one, members, all,
		all/one)
	if all < 4.5*one {
		t.Errorf("%d members do %.2f times what one does, want at least 4.5", members, all/one)
	}
}
