package controllerruntime

import (
	"context"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func newController(t *testing.T) controller.Controller {
	t.Helper()
	c, err := controller.NewUnmanaged("configs", controller.Options{
		SkipNameValidation: ptr.To(true),
		Reconciler: reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestControllerName(t *testing.T) {
	if name, ok := ControllerName(newController(t)); name != "configs" || !ok {
		t.Errorf("the controller's name is %q, %t, want configs: has its field Name changed?", name, ok)
	}
	for _, r := range []manager.Runnable{nil, manager.RunnableFunc(nil)} {
		if name, ok := ControllerName(r); ok || IsController(r) {
			t.Errorf("%T is a controller named %q", r, name)
		}
	}
}

// KindSources must find the sources of For, Owns, Watches and WatchesRawSource, with the cache and kind of each.
func TestKindSources(t *testing.T) {
	mine, other := &stubCache{}, &stubCache{}
	enqueue := &handler.EnqueueRequestForObject{}
	untyped := &unstructured.Unstructured{}
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for name, test := range map[string]struct {
		src   source.Source
		found bool
		reads bool // from mine
	}{
		"objects":      {source.Kind(mine, client.Object(&corev1.ConfigMap{}), enqueue), true, true},
		"ConfigMaps":   {source.Kind(mine, &corev1.ConfigMap{}, &enqueueConfigMap{}), true, true},
		"metadata":     {source.Kind(mine, client.Object(metadata), enqueue), true, true},
		"unstructured": {source.Kind(mine, client.Object(untyped), enqueue), true, true},
		"embedded":     {&embedding{source.Kind(mine, client.Object(&corev1.ConfigMap{}), enqueue)}, true, true},
		"wrapped":      {source.Kind(wrapped{mine}, client.Object(&corev1.ConfigMap{}), enqueue), true, true},
		"other":        {source.Kind(other, client.Object(&corev1.ConfigMap{}), enqueue), true, false},
		"unlisted":     {source.Kind(&unlisted{mine}, client.Object(&corev1.ConfigMap{}), enqueue), true, false},
		"informer":     {&source.Informer{}, false, false},
		"function":     {source.Func(nil), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t)
			if err := c.Watch(test.src); err != nil {
				t.Fatal(err)
			}
			got := KindSources(c)
			if len(got) > 0 != test.found {
				t.Fatalf("%d sources were found: has the field startWatches changed?", len(got))
			}
			if !test.found {
				return
			}
			if kind, ok := got[0].Kind(scheme.Scheme); kind.Kind != "ConfigMap" || !ok {
				t.Errorf("its kind is %v, want ConfigMap: has the field Type changed?", kind)
			}
			if reads := got[0].ReadsFrom(mine, reflect.TypeFor[wrapped]()); reads != test.reads {
				t.Errorf("it reads from the cache: %t, want %t: has the field Cache changed?", reads, test.reads)
			}
		})
	}
	if got := KindSources(manager.RunnableFunc(nil)); got != nil {
		t.Errorf("a function has %d sources", len(got))
	}
}

type unlisted wrapped
