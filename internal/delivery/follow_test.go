package delivery_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// Slots of the dead that were listed during the fence's wait are not listed again (rule R8): what was written since
// comes by the stream, and where nothing was, a bookmark says so.
func TestR08SlotsOfTheDeadAreListedOnce(t *testing.T) {
	kind := schema.GroupKind{Kind: "ConfigMap"}
	share := delivery.New(delivery.Options{Slots: 8, Patience: time.Minute}) // no list before that
	require.NoError(t, share.Shard(kind))
	server := deliverytest.NewMemory()
	names := make([]types.NamespacedName, 20)
	for n := range names {
		names[n] = types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("o%d", n)}
		if _, err := server.Create(t.Context(), names[n], nil); err != nil {
			t.Fatal(err)
		}
	}
	faults := deliverytest.NewFaulty(server.ListWatch("", ""), false)
	inf := share.NewInformer(kind, faults, &corev1.ConfigMap{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() { inf.RunWithContext(ctx); close(ended) }()

	all := slot.SetOf(slot.Range{First: 0, Last: 7})
	load := func() chan error {
		done := make(chan error, 1)
		go func() { done <- share.Load(ctx, all, table.CauseExpelled, nil, false) }()
		return done
	}
	if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
		t.Fatal("not synced")
	}
	share.Hold(all)
	require.NoError(t, share.Warm(ctx, all))
	lists := faults.Counts().Lists
	resume := sync.OnceFunc(faults.Pause())
	defer resume()
	if _, err := server.Delete(ctx, names[0]); err != nil {
		t.Fatal(err)
	}
	changed, err := server.Update(ctx, names[1])
	require.NoError(t, err)
	done := load()
	select {
	case err := <-done:
		t.Fatalf("loaded before the stream has shown what was written: %v", err)
	case <-time.After(300 * time.Millisecond): // it has asked for the version, and for a bookmark
	}
	resume()
	require.NoError(t, <-done)
	if share.Exists(kind, names[0]) {
		t.Error("the store has an object that was deleted before the load")
	}
	obj, exists, err := inf.GetStore().GetByKey(names[1].String())
	if err != nil || !exists || obj.(*corev1.ConfigMap).ResourceVersion != changed.Version {
		t.Errorf("the store has %v, want version %s (%v)", obj, changed.Version, err)
	}
	server.Tick() // a version that no event brings
	require.NoError(t, <-load())
	if after := faults.Counts().Lists; after != lists {
		t.Errorf("%d lists after that of warming, want none", after-lists)
	}
}
