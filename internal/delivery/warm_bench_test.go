package delivery_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/require"
)

// BenchmarkWarm gains a quarter of the slots of a kind with 5,000 objects of 2 KB, again and again.
func BenchmarkWarm(b *testing.B) {
	for _, f := range []form{forms[0], forms[1]} {
		b.Run(f.name, func(b *testing.B) {
			config := controlplane.For(b).Config()
			namespace := controlplane.Namespace(b)
			if f.resource == widgets {
				require.NoError(b, controlplane.For(b).InstallCRDs(b.Context(), []byte(crds)))
			}
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				b.Fatal(err)
			}
			fill(b, client.Resource(f.resource).Namespace(namespace), f, namespace)
			for _, kind := range []sharding.Mode{sharding.Filter, sharding.SlotLabel, sharding.ShardSelector} {
				b.Run(kind.String(), func(b *testing.B) { warm(b, f, kind, namespace) })
			}
		})
	}
}

func warm(b *testing.B, f form, how sharding.Mode, namespace string) {
	list, follow := f.source(b, controlplane.For(b).Config(), f)(namespace)
	share := delivery.New(delivery.Options{Mode: how})
	kind := schema.GroupKind{Group: f.resource.Group, Kind: f.kind}
	require.NoError(b, share.Shard(kind))
	inf := share.NewInformer(kind, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface,
			error) {
			return follow(ctx, o)
		},
	}, f.example, 0, nil)
	share.Hold(slot.SetOf(slot.Range{First: 64, Last: 255}))
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	b.Cleanup(func() { cancel(); wg.Wait() })
	cache.WaitForCacheSync(ctx.Done(), inf.HasSynced)
	held := len(inf.GetStore().List())
	gained := slot.SetOf(slot.Range{First: 0, Last: 63})
	for b.Loop() {
		share.Hold(gained)
		require.NoError(b, share.Warm(ctx, gained))
		b.StopTimer()
		share.Release(gained)
		for len(inf.GetStore().ListKeys()) > held {
			<-time.After(time.Millisecond)
		}
		b.StartTimer()
	}
	traffic := share.Traffic()[kind]
	b.ReportMetric(float64(traffic.Received)/float64(b.N), "objects/op")
}

func fill(b *testing.B, client dynamic.ResourceInterface, f form, namespace string) {
	var wg sync.WaitGroup
	for worker := range 20 {
		wg.Go(func() {
			for i := range 250 {
				u := unstructuredOf(f.resource.Group, f.kind)
				u.SetName(fmt.Sprintf("o-%d-%d", worker, i))
				u.SetLabels(map[string]string{sharding.HashLabel(slot.KeyName,
					schema.GroupKind{Group: f.resource.Group, Kind: f.kind}): sharding.LabelValue(slot.HashName(namespace,
					u.GetName()))})
				_ = unstructured.SetNestedField(u.Object, strings.Repeat("x", 2048), "data", "text")
				if _, err := client.Create(b.Context(), u, metav1.CreateOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
