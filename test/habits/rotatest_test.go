package habits

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/test/controlplane"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	controlplane.Main(m, controlplane.Options{})
}

const leaseDuration = 6 * time.Second

// quick are the habits that run without SLOW=1. Each takes a minute.
var quick = []string{"expectations", "zones"}

// TestHabits: rotatest finds nothing wrong with any of the operators, whose objects become what they should be.
func TestHabits(t *testing.T) {
	const made = 8
	for _, h := range All() {
		t.Run(h.Name, func(t *testing.T) {
			if os.Getenv("SLOW") == "" && !slices.Contains(quick, h.Name) {
				t.Skip("takes a minute: make check WHAT=slow")
			}
			cfg, namespace := controlplane.For(t).Config(), controlplane.Namespace(t)
			versions := map[int]int{}
			rotatest.Run(t, rotatest.Options{
				Config:        cfg,
				ForeignWrites: h.foreign,
				// Busy machines take seconds for a renewal.
				Rota:    rota.Options{LeaseDuration: leaseDuration},
				Manager: ctrl.Options{Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}},
				Setup:   func(mgr *ctrlrt.Manager) error { return h.Build(&Process{mgr, namespace}) },
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
					err := c.List(ctx, &items, client.InNamespace(namespace), client.HasLabels{Label})
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
