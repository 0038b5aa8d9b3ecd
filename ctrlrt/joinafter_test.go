package ctrlrt_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// An operator builds its controllers once a runnable of the same manager has made certificates, as with a rotator of
// certificates for its webhooks. Its indexes are there before.
func TestControllersAreBuiltAfterTheStart(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	mgr := newMember(t, controlplane.For(t).Config(), namespace, "a", rota.Options{})
	r := mgr.Rota()
	built := make(chan struct{})
	require.NoError(t, r.JoinAfter("the controllers, which are built once there are certificates", built))
	for _, obj := range []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} {
		require.NoError(t, mgr.GetFieldIndexer().IndexField(t.Context(), obj, "size", func(obj client.Object) []string {
			return []string{obj.GetLabels()["size"]}
		}))
	}
	certified, ready := make(chan struct{}), make(chan error, 1)
	require.NoError(t, mgr.Add(leaderless(func(context.Context) error {
		ready <- r.Ready(nil)
		close(certified)
		return nil
	})))
	ended := begin(t, mgr).done
	parent := &corev1.Secret{}
	parent.Namespace, parent.Name, parent.Labels = namespace, "a", map[string]string{"size": "1"}
	require.NoError(t, c.Create(t.Context(), parent))
	child := configMap(namespace, "a", "1")
	child.Labels = map[string]string{"size": "1"}
	require.NoError(t, controllerutil.SetControllerReference(parent, child, c.Scheme()))
	require.NoError(t, c.Create(t.Context(), child))
	select {
	case <-certified:
	case err := <-ended:
		t.Fatalf("the manager ended: %v", err)
	}
	if err := <-ready; err == nil || !strings.Contains(err.Error(), "which are built once there are certificates") {
		t.Errorf("ready while controllers are missing: %v", err)
	}
	// The kind of the children has a controller of its own, so that it is in two caches.
	done := make(chan string, 100)
	report := func(name string, err error) (reconcile.Result, error) {
		if err == nil {
			done <- name
		}
		return reconcile.Result{}, err
	}
	bySize := client.MatchingFields{"size": "1"}
	err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
		func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			var list corev1.ConfigMapList
			return report("child", mgr.GetClient().List(ctx, &list, ctrlrt.Share, bySize))
		}))
	require.NoError(t, err)
	err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Owns(&corev1.ConfigMap{}).Complete(reconcile.Func(
		func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			var parents corev1.SecretList
			if err := mgr.GetClient().List(ctx, &parents, bySize); err != nil {
				return reconcile.Result{}, err
			}
			var children corev1.ConfigMapList
			if err := mgr.GetClient().List(ctx, &children, bySize); err != nil || len(children.Items) == 0 {
				return reconcile.Result{}, err
			}
			return report("parent", nil)
		}))
	require.NoError(t, err)
	require.NoError(t, mgr.AddDuty("report", manager.RunnableFunc(func(context.Context) error {
		done <- "duty"
		return nil
	})))
	select {
	case <-r.Joined():
		t.Error("joined before the controllers were built")
	default:
	}
	close(built)
	for missing := []string{"child", "parent", "duty"}; len(missing) > 0; {
		select {
		case name := <-done:
			missing = slices.DeleteFunc(missing, func(other string) bool { return other == name })
		case err := <-ended:
			t.Fatalf("the manager ended: %v", err)
		case <-time.After(time.Minute):
			t.Fatalf("still missing: %v; ready: %v", missing, r.Ready(nil))
		}
	}
}
