package ctrlrt_test

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
)

// A test of an operator on an API server needs neither a table nor Leases, nor a namespace for them, and waits for
// nothing.
func TestSoloInAManager(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	cfg := controlplane.For(t).Config()
	r, err := rota.New(cfg, rota.Options{Solo: true, Namespace: namespace, Logger: testLogger(t, "solo")})
	if err != nil {
		t.Fatal(err)
	}
	o := managerOptions()
	o.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	mgr, err := ctrlrt.NewManager(cfg, r, o)
	if err != nil {
		t.Fatal(err)
	}
	reconciled := make(chan string, 100)
	err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			var cm corev1.ConfigMap
			if err := mgr.GetClient().Get(ctx, req.NamespacedName, &cm); err != nil || cm.Data["done"] != "" {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			cm.Data = map[string]string{"done": "yes"}
			if err := mgr.GetClient().Update(ctx, &cm); err != nil {
				return reconcile.Result{}, err
			}
			reconciled <- req.Name
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	for _, name := range []string{"a", "b"} {
		if err := c.Create(t.Context(), configMap(namespace, name, "1")); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for !seen["a"] || !seen["b"] {
		select {
		case name := <-reconciled:
			seen[name] = true
		case err := <-ended:
			t.Fatalf("the manager ended: %v", err)
		case <-time.After(30 * time.Second):
			t.Fatalf("reconciled %v, want a and b", seen)
		}
	}
	var leases coordinationv1.LeaseList
	if err := c.List(t.Context(), &leases, client.InNamespace(namespace)); err != nil || len(leases.Items) > 0 {
		t.Errorf("%d Leases (error %v), want none", len(leases.Items), err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the manager ended with %v", err)
	}
}
