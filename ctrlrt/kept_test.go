package ctrlrt_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
)

// views records how many labelled ConfigMaps each reader of a member saw last, and which ones controllers were woken
// for.
type views struct {
	mu    sync.Mutex
	lists map[string]int
	seen  map[string]map[string]string // by reader, by name, the annotation "changed"
}

func (v *views) list(ctx context.Context, c client.Client, namespace, reader string, opts ...client.ListOption) error {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, append(opts, client.InNamespace(namespace),
		client.MatchingLabels{"test": "kept"})...); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lists[reader] = len(list.Items)
	return nil
}

func (v *views) see(reader, name, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen[reader] == nil {
		v.seen[reader] = map[string]string{}
	}
	v.seen[reader][name] = value
}

// ConfigMaps are sharded by one controller and needed whole: by KeepWhole, or since the sharded controller of Secrets
// watches them.
func TestAShardedKindThatIsNeededWhole(t *testing.T) {
	for _, test := range []struct {
		name string
		kept bool
	}{{"kept", true}, {"watched by another sharded controller", false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			testNeededWhole(t, test.kept)
		})
	}
}

func testNeededWhole(t *testing.T, kept bool) {
	const objects = 24
	c, namespace := adminClient(t), controlplane.Namespace(t)
	for i := range objects {
		cm := configMap(namespace, fmt.Sprint("object-", i), "1")
		cm.Labels = map[string]string{"test": "kept"}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cm.Name}}
		for _, obj := range []client.Object{cm, secret} {
			noError(t, c.Create(t.Context(), obj))
		}
	}
	v := &views{lists: map[string]int{}, seen: map[string]map[string]string{}}
	var live atomic.Int32 // requests for single ConfigMaps
	cfg := controlplane.For(t).Config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/configmaps/object-") {
				live.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	const field = "data.value"
	byValue := client.MatchingFields{field: "1"}
	start := func(pod string) *replica {
		return startMemberVia(t, cfg, namespace, pod, rota.Options{}, func(mgr *ctrlrt.Manager) error {
			cached := mgr.GetClient()
			err := mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, field, func(o client.Object) []string {
				return []string{o.(*corev1.ConfigMap).Data["value"]}
			})
			if err != nil {
				return err
			}
			if kept {
				if err := mgr.KeepWhole(&corev1.ConfigMap{}); err != nil {
					return err
				}
				// It is not sharded, and gets all events.
				err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("stock").
					WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
					Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
						var cm corev1.ConfigMap
						if err := cached.Get(ctx, req.NamespacedName, &cm); err != nil {
							return reconcile.Result{}, client.IgnoreNotFound(err)
						}
						v.see(pod+" stock", cm.Name, cm.Annotations["changed"])
						return reconcile.Result{}, v.list(ctx, cached, namespace, pod+" stock", byValue)
					}))
				if err != nil {
					return err
				}
			}
			err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(
				func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
					var cm corev1.ConfigMap
					if err := cached.Get(ctx, req.NamespacedName, &cm); err != nil {
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					v.see("configmaps", cm.Name, cm.Annotations["changed"])
					return reconcile.Result{}, v.list(ctx, cached, namespace, pod+" configmaps", byValue)
				}))
			if err != nil {
				return err
			}
			secrets := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{})
			if !kept {
				secrets.Watches(&corev1.ConfigMap{}, &handler.EnqueueRequestForObject{})
			}
			return secrets.Complete(reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
				var cm corev1.ConfigMap
				if err := cached.Get(ctx, req.NamespacedName, &cm); err != nil {
					return reconcile.Result{}, client.IgnoreNotFound(err)
				}
				v.see("secrets", cm.Name, cm.Annotations["changed"])
				return reconcile.Result{}, v.list(ctx, cached, namespace, pod+" secrets", byValue)
			}))
		})
	}
	a, b := start("a"), start("b")
	eventually(t, 30*time.Second, settled(a, b))
	if s := a.Rota().Status(); s.Owned.Len() != 128 {
		t.Errorf("a owns %d slots, want half of them: work on a kind that is needed whole is shared", s.Owned.Len())
	}
	// The events of all objects come to the controllers that need them.
	for i := range objects {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"changed":"yes"}}}`))
		noError(t, c.Patch(t.Context(), configMap(namespace, fmt.Sprint("object-", i), ""), patch))
	}
	whole := []string{"a secrets", "b secrets"}
	woken := []string{"configmaps"}
	if !kept {
		woken = append(woken, "secrets")
	} else {
		whole = append(whole, "a stock", "b stock", "a configmaps", "b configmaps")
		woken = append(woken, "a stock", "b stock")
	}
	eventually(t, 30*time.Second, func() string {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, reader := range whole {
			if v.lists[reader] != objects {
				return fmt.Sprintf("%s lists %d objects, want all %d", reader, v.lists[reader], objects)
			}
		}
		for _, reader := range woken {
			for i := range objects {
				if name := fmt.Sprint("object-", i); v.seen[reader][name] != "yes" {
					return fmt.Sprintf("%s did not see the change of %s", reader, name)
				}
			}
		}
		if n, m := v.lists["a configmaps"], v.lists["b configmaps"]; !kept && n+m != objects {
			return fmt.Sprintf("the controller of ConfigMaps lists %d and %d objects, want shares", n, m)
		}
		return ""
	})
	if err := v.list(t.Context(), a.GetClient(), namespace, "outside", byValue); err != nil ||
		v.lists["outside"] != objects {
		t.Errorf("List from outside: %d objects, error %v, want %d", v.lists["outside"], err, objects)
	}
	if n := live.Load(); n > 0 {
		t.Errorf("%d Gets went to the API server, want none", n)
	}
}
