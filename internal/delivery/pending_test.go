package delivery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// What nobody reads is forgotten once it is shown: a controller may write for years and read little.
func TestWritesThatAreShownAreForgotten(t *testing.T) {
	kind := schema.GroupKind{Kind: "ConfigMap"}
	share := delivery.New(delivery.Options{Slots: 8})
	share.KeepWrites()
	require.NoError(t, share.Shard(kind))
	server := deliverytest.NewMemory()
	inf := share.NewInformer(kind, server.ListWatch("", ""), &corev1.ConfigMap{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() { inf.RunWithContext(ctx); close(ended) }()
	all := slot.SetOf(slot.Range{First: 0, Last: 7})
	share.Hold(all)
	require.NoError(t, share.Load(ctx, all, table.CauseAssigned, nil, false))
	share.Open(all)
	const least = 1000
	writes := 0
	// They are looked for beside the writes, so that how many are kept at a time says nothing: the number falls again.
	for late := time.Now().Add(time.Minute); writes < least || share.Pending(kind) > writes/4; writes++ {
		if time.Now().After(late) {
			t.Fatalf("%d of %d writes are kept", share.Pending(kind), writes)
		}
		n := writes
		name := types.NamespacedName{Namespace: "a", Name: fmt.Sprint("o", n)}
		w := share.Write(kind, name, nil)
		obj, err := server.Create(ctx, name, nil)
		require.NoError(t, err)
		w.Answered(&metav1.ObjectMeta{Namespace: "a", Name: name.Name, UID: obj.UID, ResourceVersion: obj.Version})
		if n%2 == 0 { // the cache has not shown it yet
			w = share.Write(kind, name, nil)
			if _, err := server.Delete(ctx, name); err != nil {
				t.Fatal(err)
			}
			w.Deleted(&metav1.ObjectMeta{UID: obj.UID})
		}
		if n%100 == 0 {
			require.NoError(t, share.Reached(ctx, table.Versions{kind.String(): obj.Version}))
		}
	}
	require.NoError(t, share.AwaitWrites(ctx, kind, "", feed.ViewShare))
	if n := share.Pending(kind); n > 0 {
		t.Errorf("%d writes are kept after a read of all", n)
	}
	for n := range writes {
		_, exists, err := inf.GetStore().GetByKey(fmt.Sprint("a/o", n))
		if err != nil || exists != (n%2 == 1) {
			t.Fatalf("o%d exists: %v (%v)", n, exists, err)
		}
	}
}

// Reads from an informer of all objects wait for writes, but not for a kind that is not served. For a kind that is only
// in stock informers no read of ours waits, and nothing is kept.
func TestReadsOfWholeKinds(t *testing.T) {
	kind := schema.GroupKind{Kind: "ConfigMap"}
	share := delivery.New(delivery.Options{Slots: 8})
	share.KeepWrites()
	server := deliverytest.NewMemory()
	faulty := deliverytest.NewFaulty(server.ListWatch("", ""), false)
	stock := share.NewInformer(kind, server.ListWatch("", ""), &corev1.ConfigMap{}, 0, cache.Indexers{})
	whole := share.NewWholeInformer(kind, faulty, &corev1.ConfigMap{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	name := types.NamespacedName{Namespace: "a", Name: "x"}
	write := func() {
		t.Helper()
		w := share.Write(kind, name, nil, 1)
		obj, err := server.Update(ctx, name)
		require.NoError(t, err)
		w.Answered(&metav1.ObjectMeta{Namespace: "a", Name: "x", UID: obj.UID, ResourceVersion: obj.Version})
	}
	if _, err := server.Create(ctx, name, nil); err != nil {
		t.Fatal(err)
	}
	wg.Go(func() { stock.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), stock.HasSynced)
	if write(); share.Pending(kind) > 0 {
		t.Error("a write is kept for which no read of ours waits")
	}
	wg.Go(func() { whole.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), whole.HasSynced)
	resume := faulty.Pause()
	write()
	read := make(chan error, 1)
	go func() { read <- share.AwaitWrite(ctx, kind, name, feed.ViewWhole) }()
	select {
	case err := <-read:
		t.Errorf("the read did not wait (%v)", err)
	case <-time.After(200 * time.Millisecond):
	}
	resume()
	if err := <-read; err != nil {
		t.Error(err)
	}
	faulty.Refuse(apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{Resource: "configmaps"}, "",
		"404 page not found", 0, true))
	write()
	if err := share.AwaitWrite(ctx, kind, name, feed.ViewWhole); err != nil {
		t.Errorf("a read of a kind that is not served: %v", err)
	}
}
