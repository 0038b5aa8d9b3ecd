package controllerruntime

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type (
	enqueueConfigMap = handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]
	embedding        struct{ source.Source }
	own[T any]       struct{ source.Func }
	wrapped          struct{ cache.Cache }
)

func TestIsChannel(t *testing.T) {
	objects := source.Channel(make(chan event.GenericEvent), &handler.EnqueueRequestForObject{})
	typed := source.Channel(make(chan event.TypedGenericEvent[*corev1.ConfigMap]), &enqueueConfigMap{})
	for name, test := range map[string]struct {
		src  source.Source
		want bool
	}{
		"a channel of objects":    {objects, true},
		"a channel of ConfigMaps": {typed, true},
		"a Kind":                  {source.Kind(cache.Cache(nil), client.Object(nil), nil), false},
		"an Informer":             {&source.Informer{}, false},
		"a function":              {source.Func(nil), false},
		"one that embeds it":      {&embedding{objects}, false},
		"a generic one":           {&own[int]{}, false},
		"nil":                     {nil, false},
	} {
		if got := IsChannel(test.src); got != test.want {
			t.Errorf("%s: IsChannel is %t, want %t", name, got, test.want)
		}
	}
}

func TestWithCache(t *testing.T) {
	wrap := func(c cache.Cache) cache.Cache { return wrapped{c} }
	inner := &stubCache{}
	for name, src := range map[string]source.Source{
		"objects":    source.Kind(inner, client.Object(&corev1.ConfigMap{}), &handler.EnqueueRequestForObject{}),
		"ConfigMaps": source.Kind(inner, &corev1.ConfigMap{}, &enqueueConfigMap{}),
	} {
		got := WithCache(src, wrap)
		if got == src {
			t.Errorf("%s: the source is unchanged: does source.Kind have no field Cache any more?", name)
			continue
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := got.Start(ctx, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		_ = got.(source.SyncingSource).WaitForSync(t.Context())
		if again := WithCache(got, func(c cache.Cache) cache.Cache {
			if c != (wrapped{inner}) {
				t.Errorf("%s: the copy's cache is %v, want the wrapped one", name, c)
			}
			return c
		}); again == got {
			t.Errorf("%s: the copy cannot be wrapped", name)
		}
	}
	for _, src := range []source.Source{nil, source.Func(nil), &source.Informer{}, &embedding{},
		source.Kind(nil, client.Object(nil), nil)} {
		if _, function := src.(source.Func); !function && WithCache(src, wrap) != src {
			t.Errorf("%T was changed", src)
		}
	}
}

// stubCache has no informers.
type stubCache struct{ cache.Cache }

func (*stubCache) GetInformer(_ context.Context, _ client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, context.Canceled
}
