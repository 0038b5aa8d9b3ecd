package ctrlrt_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// A raw source of a kind that is not served holds up its own controller, whatever cache it reads from; the member works
// without it after a while, and says what it waits for until then.
func TestRawSourceOfAMissingKind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		cache func(*ctrlrt.Manager) (cache.Cache, error)
	}{
		{"the manager's cache", func(mgr *ctrlrt.Manager) (cache.Cache, error) { return mgr.GetCache(), nil }},
		{"the cache of Whole", func(mgr *ctrlrt.Manager) (cache.Cache, error) {
			whole, err := mgr.Whole()
			if err != nil {
				return nil, err
			}
			return whole.GetCache(), nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			testRawSourceOfAMissingKind(t, test.cache)
		})
	}
}

func testRawSourceOfAMissingKind(t *testing.T, from func(*ctrlrt.Manager) (cache.Cache, error)) {
	c, namespace := adminClient(t), controlplane.Namespace(t)
	gadget := &unstructured.Unstructured{}
	gadget.SetGroupVersionKind(schema.GroupVersionKind{Group: "missing.rota.dev", Version: "v1", Kind: "Gadget"})
	reconciled := make(chan string, 100)
	m := startMember(t, namespace, "a", rota.Options{}, func(mgr *ctrlrt.Manager) error {
		read, err := from(mgr)
		if err != nil {
			return err
		}
		err = ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WatchesRawSource(source.Kind(read, gadget,
			&handler.TypedEnqueueRequestForObject[*unstructured.Unstructured]{})).Complete(nothing)
		if err != nil {
			return err
		}
		return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(reconcile.Func(
			func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
				reconciled <- r.Name
				return reconcile.Result{}, nil
			}))
	})
	eventually(t, 9*time.Second, func() string {
		err := m.Rota().Ready(nil)
		if err == nil {
			t.Fatal("ready before it waited for the kind")
		}
		return lacks(err.Error(), "controller configmap", "WatchesRawSource", inSources(gadget), "CustomResourceDefinition")
	})
	require.NoError(t, c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: "s"}}))
	select {
	case <-reconciled:
	case err := <-m.done:
		t.Fatalf("the manager ended: %v", err)
	case <-time.After(time.Minute):
		t.Errorf("a kind that does not exist holds up the others: %v", m.Rota().Ready(nil))
	}
}

// inSources returns what a source of a kind says of it: before controller-runtime 0.24 its Go type only.
func inSources(obj client.Object) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	said := fmt.Sprint(source.Kind(nil, obj, &handler.EnqueueRequestForObject{}))
	if strings.Contains(said, kind) {
		return kind
	}
	return fmt.Sprintf("%T", obj)
}

// A source that never syncs is named. The member does not join: it cannot know that the controller would never work.
func TestRawSourceThatDoesNotSync(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, want string
		source     func(cache.Cache) source.Source
	}{
		{"a cache that was not started", "v1.Service", func(c cache.Cache) source.Source {
			return source.Kind(c, &corev1.Service{}, &handler.TypedEnqueueRequestForObject[*corev1.Service]{})
		}},
		{"a source of one's own", "neverSyncs", func(cache.Cache) source.Source { return neverSyncs{} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			namespace := controlplane.Namespace(t)
			m := startMember(t, namespace, "a", rota.Options{}, func(mgr *ctrlrt.Manager) error {
				stopped, err := cache.New(mgr.GetConfig(), cache.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
				if err != nil {
					return err
				}
				return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).WatchesRawSource(test.source(stopped)).
					Complete(nothing)
			})
			eventually(t, 30*time.Second, func() string {
				err := m.Rota().Ready(nil)
				if err == nil {
					t.Fatal("ready without the source")
				}
				return lacks(err.Error(), "controller configmap", "WatchesRawSource", test.want, "has not synced")
			})
		})
	}
}

// neverSyncs is a source that never syncs.
type neverSyncs struct{}

func (neverSyncs) Start(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	return nil
}

func (neverSyncs) WaitForSync(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// lacks names the words that a text does not have; "" if it has all.
func lacks(text string, words ...string) string {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Sprintf("%q does not say %q", text, word)
		}
	}
	return ""
}
