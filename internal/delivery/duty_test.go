package delivery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// R8: what a duty wrote of a kind that is sharded shows in the informers that hold all of it before the duty's next
// owner begins, a deletion too. No slot of a hash waits for them.
func TestR8DutiesWriteShardedKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const duty = 8
		s := New(Options{Slots: 8})
		require.NoError(t, s.Shard(configMapKind))
		list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
		for _, name := range []string{"a", "b"} {
			cm := configMap("ns", name, "uid-"+name)
			cm.ResourceVersion = "5"
			list.Items = append(list.Items, *cm)
		}
		events := watch.NewFake()
		inf := s.NewWholeInformer(configMapKind, listsOnly{&cache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list.DeepCopy(), nil },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
		}}, &corev1.ConfigMap{}, noResync, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go inf.RunWithContext(ctx)
		cache.WaitForCacheSync(ctx.Done(), inf.HasSynced)
		if s.Exists(configMapKind, types.NamespacedName{Namespace: "ns", Name: "a"}) || len(s.Active()) > 0 {
			t.Error("the share looks into an informer that it has nothing to do with")
		}

		// An answer with a version, on behalf of the duty.
		changed := configMap("ns", "a", "uid-a")
		changed.ResourceVersion = "9"
		s.Write(configMapKind, types.NamespacedName{Namespace: "ns", Name: "a"}, nil, duty).Answered(changed)
		key := ledger.WholeKey(configMapKind)
		if got := s.Versions(slot.SetOf(slot.Range{First: duty, Last: duty})); got[key] != "9" {
			t.Errorf("versions %v, want 9 of %s", got, key)
		}
		if got := s.Versions(slot.SetOf(slot.Range{Last: 7})); got[key] != "" {
			t.Errorf("slots of hashes: %v", got)
		}
		begun := time.Now()
		time.AfterFunc(300*time.Millisecond, func() { events.Modify(changed) })
		s.LoadDuties(ctx, table.CauseHanded, s.Versions(slot.SetOf(slot.Range{First: duty, Last: duty})))
		if waited := time.Since(begun); waited < 300*time.Millisecond || waited > 310*time.Millisecond {
			t.Errorf("loaded after %v, want it once the store shows the write", waited)
		}

		// A deletion without a version. It is settled by what the informer shows.
		s.Write(configMapKind, types.NamespacedName{Namespace: "ns", Name: "b"}, nil, duty).Deleted(nil)
		if !s.Unsettled(duty) {
			t.Error("nothing is left to settle after a deletion")
		}
		gone := configMap("ns", "b", "uid-b")
		gone.ResourceVersion = "11"
		time.AfterFunc(20*time.Millisecond, func() { events.Delete(gone) })
		s.Settle(ctx, slot.SetOf(slot.Range{First: duty, Last: duty}))
		if got := s.Versions(slot.SetOf(slot.Range{First: duty, Last: duty})); got[key] != "11" || s.Unsettled(duty) {
			t.Errorf("versions %v, want 11", got)
		}

		// After an expel the store must show what there is.
		list.ResourceVersion, list.Items = "13", list.Items[:1]
		list.Items[0].ResourceVersion = "13"
		begun = time.Now()
		time.AfterFunc(time.Second, func() { events.Modify(&list.Items[0]) })
		s.LoadDuties(ctx, table.CauseExpelled, nil)
		if waited := time.Since(begun); waited < time.Second || waited > 1100*time.Millisecond {
			t.Errorf("loaded after %v, want it once the store shows all", waited)
		}

		s.Write(configMapKind, types.NamespacedName{Namespace: "ns", Name: "b"}, nil, duty).Lost()
		s.ReleaseDuties(slot.SetOf(slot.Range{First: duty, Last: duty}))
		if s.Unsettled(duty) {
			t.Error("unsettled after the release")
		}
		cancel()
		events.Stop()
	})
}
