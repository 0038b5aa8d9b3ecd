package ctrlrt_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// A sharded controller and a duty watch the metadata of a kind that is not sharded. Both get its events, and have their
// own loggers.
func TestMetadataWatches(t *testing.T) {
	t.Parallel()
	const objects = 8
	c, namespace := adminClient(t), controlplane.Namespace(t)
	var mu sync.Mutex
	woken, logged := map[string]bool{}, map[string]bool{} // by controller and name
	reconciler := func(controller string) reconcile.Reconciler {
		return reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			woken[controller+" "+req.Name] = true
			return reconcile.Result{}, nil
		})
	}
	logs := func(controller string) func(*reconcile.Request) logr.Logger {
		return func(req *reconcile.Request) logr.Logger {
			mu.Lock()
			defer mu.Unlock()
			if req != nil {
				logged[controller+" "+req.Name] = true
			}
			return logr.Discard()
		}
	}
	changed := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetAnnotations()["changed"] != "" })
	build := func(mgr *ctrlrt.Manager) error {
		if err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Named("sharded").WithEventFilter(changed).
			WatchesMetadata(&corev1.ConfigMap{}, &handler.EnqueueRequestForObject{}).
			WithLogConstructor(logs("sharded")).Complete(reconciler("sharded")); err != nil {
			return err
		}
		return ctrlrt.NewDutyControllerManagedBy(mgr).For(&corev1.ServiceAccount{}).Named("duty").WithEventFilter(changed).
			WatchesMetadata(&corev1.ConfigMap{}, &handler.EnqueueRequestForObject{}).
			WithLogConstructor(logs("duty")).Complete(reconciler("duty"))
	}
	a, b := startMember(t, namespace, "a", rota.Options{}, build), startMember(t, namespace, "b", rota.Options{}, build)
	eventually(t, 30*time.Second, settled(a, b))
	for i := range objects {
		cm := configMap(namespace, fmt.Sprint("object-", i), "1")
		require.NoError(t, c.Create(t.Context(), cm)) // the filter drops it
		cm.SetAnnotations(map[string]string{"changed": "yes"})
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cm.Name}}
		require.NoError(t, c.Create(t.Context(), secret))
		require.NoError(t, c.Update(t.Context(), cm))
	}
	eventually(t, 30*time.Second, func() string {
		mu.Lock()
		defer mu.Unlock()
		for _, controller := range []string{"sharded", "duty"} {
			for i := range objects {
				key := fmt.Sprintf("%s object-%d", controller, i)
				if !woken[key] || !logged[key] {
					return fmt.Sprintf("%s: reconciled %v, with its logger %v", key, woken[key], logged[key])
				}
			}
		}
		return ""
	})
}
