package feed

import (
	"context"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// BenchmarkEvent is what an event of the watch costs until the reflector has it: of this member's object, and of
// another's.
func BenchmarkEvent(b *testing.B) {
	share := newCommon(sharding.Options{Slots: 256})
	require.NoError(b, share.Shard(configMapKind))
	inf := NewInformer(share, configMapKind, &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
	}, &corev1.ConfigMap{}, 0, nil)
	inf.Running, inf.Sharded, inf.Role = true, true, sharding.Role{Primary: true}
	s := inf.Source
	s.on.Store(true)
	share.hold(slot.SetOf(slot.Range{First: 0, Last: 127}))
	if _, err := s.ListWithContext(b.Context(), metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	p := newPump(b.Context(), s, metav1.ListOptions{})
	p.asked = sharding.Everything
	s.goesOn(p)
	go func() {
		for range p.out {
		}
	}()
	version := 1
	for _, c := range []struct {
		name string
		ours bool
	}{{"Ours", true}, {"Others", false}} {
		b.Run(c.name, func(b *testing.B) {
			obj := configMap("some-namespace", "", "uid")
			for i := 0; ; i++ {
				obj.Name = "some-object-" + strconv.Itoa(i)
				if (share.Slot(obj.Namespace, obj.Name, "") < 128) == c.ours {
					break
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				version++
				obj.ResourceVersion = strconv.Itoa(version)
				if !p.received(watch.Event{Type: watch.Modified, Object: obj}, true) {
					b.Fatal("ended")
				}
			}
		})
	}
}
