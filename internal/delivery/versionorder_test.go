package delivery

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// R8: which of two states is the newer one cannot be told where versions have no order: such a kind is refused, be it
// listed or streamed, and the error is told to whoever asked for errors.
func TestR8KindsWithoutAnOrderAreRefused(t *testing.T) {
	objects := func() []corev1.ConfigMap {
		a, b := configMap("ns", "a", "1"), configMap("ns", "b", "2")
		a.ResourceVersion, b.ResourceVersion = "5f0c", "91ab"
		return []corev1.ConfigMap{*a, *b}
	}
	lists := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "77e0"}, Items: objects()}, nil
		},
		WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(2, false)
			if o.SendInitialEvents != nil && *o.SendInitialEvents {
				for _, obj := range objects() {
					w.Add(obj.DeepCopy())
				}
			}
			return w, nil
		},
	}
	for name, upstream := range map[string]cache.ListerWatcher{"lists": listsOnly{lists}, "streams": lists} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{Slots: 8})
			require.NoError(t, s.Shard(configMapKind))
			inf := s.NewInformer(configMapKind, upstream, &corev1.ConfigMap{}, 0, nil)
			told := make(chan error, 100)
			if err := inf.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector,
				err error) {
				told <- err
			}); err != nil {
				t.Fatal(err)
			}
			s.Hold(slot.SetOf(slot.Range{First: 0, Last: 7})) // before its first list: the handler hears of that one
			go inf.RunWithContext(t.Context())
			load, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			go func() { _ = s.Load(load, slot.SetOf(slot.Range{First: 0, Last: 7}), table.CauseAssigned, nil, false) }()
			select {
			case err := <-told:
				if !errors.Is(err, feed.ErrNoOrder) {
					t.Errorf("told: %v", err)
				}
			case <-load.Done():
				t.Fatal("nothing was told")
			}
			if failing := s.Failing(); len(failing) != 1 || failing[0].Request != feed.RequestList ||
				!errors.Is(failing[0].Err, feed.ErrNoOrder) {
				t.Errorf("failing: %v", failing)
			}
			if inf.HasSynced() || len(inf.GetStore().List()) > 0 {
				t.Errorf("synced: %v, with %v", inf.HasSynced(), inf.GetStore().List())
			}
		})
	}
}

// listsOnly is an upstream that does not stream lists.
type listsOnly struct{ cache.ListerWatcher }

func (listsOnly) IsWatchListSemanticsUnSupported() bool { return true }
