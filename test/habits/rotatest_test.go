package habits

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/test/controlplane"
)

// TestKit: the kit for users' tests finds nothing wrong with operators that survive their life here.
func TestKit(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip("takes a minute for each: make check WHAT=slow")
	}
	const made = 8
	for _, h := range []Habit{emptyNames(), finalizers(), kinds(), expectations()} {
		h = h.withDefaults()
		t.Run(h.Name, func(t *testing.T) {
			cfg, namespace := controlplane.For(t).Config(), controlplane.Namespace(t)
			versions := map[int]int{}
			rotatest.Run(t, rotatest.Options{
				Config:  cfg,
				Manager: ctrl.Options{Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}},
				Setup: func(mgr *ctrlrt.Manager) error {
					return h.Build(&Process{mgr, namespace, func(cfg *rest.Config) *rest.Config { return cfg }})
				},
				Change: func(ctx context.Context, c client.Client) error {
					u := User{ctx, c, namespace}
					clear(versions)
					for i := range made {
						if err := h.Create(u, i); err != nil {
							return err
						}
						versions[i] = 1
					}
					for i := range made / 2 {
						if err := h.Change(u, i, 2); err != nil {
							return err
						}
						versions[i] = 2
					}
					delete(versions, made-1)
					return h.Remove(u, made-1)
				},
				Normalize: func(obj *unstructured.Unstructured) { // the tags of expectations are random
					unstructured.RemoveNestedField(obj.Object, "metadata", "labels", "tag")
				},
				Settled: func(ctx context.Context, c client.Client) (bool, error) {
					var items corev1.ConfigMapList
					err := c.List(ctx, &items, client.InNamespace(namespace))
					if err != nil || len(items.Items) == 0 { // at first, and at the end
						return true, err
					}
					wrong, err := h.Wrong(User{ctx, c, namespace}, versions)
					return wrong == "", err
				},
			})
		})
	}
}
