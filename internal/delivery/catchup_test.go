package delivery_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// A drain asks about kinds that have objects in its slots only, and drains that begin at the same moment ask once.
func TestCatchUpAsksForWhatMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kinds, slots, full, few = 200, 256, 5, 10
		share := delivery.New(delivery.Options{Slots: slots, Patience: 20 * time.Millisecond})
		all := slot.SetOf(slot.Range{First: 0, Last: slots - 1})
		share.Hold(all)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer func() { cancel(); running.Wait() }()
		faults := make([]*deliverytest.Faulty, kinds)
		servers := make([]*deliverytest.Memory, kinds)
		for n := range kinds {
			kind := schema.GroupKind{Group: "example.com", Kind: "Kind" + strconv.Itoa(n)}
			require.NoError(t, share.Shard(kind))
			servers[n] = deliverytest.NewMemory()
			objects := few
			if n < full {
				objects = 10 * slots
			}
			for o := range objects {
				if _, err := servers[n].Create(ctx, types.NamespacedName{Namespace: "a", Name: fmt.Sprintf("o%d-%d", n, o)},
					nil); err != nil {
					t.Fatal(err)
				}
			}
			faults[n] = deliverytest.NewFaulty(servers[n].ListWatch("", ""), false)
			inf := share.NewInformer(kind, faults[n], &corev1.ConfigMap{}, deliverytest.Never, cache.Indexers{})
			running.Go(func() { inf.RunWithContext(ctx) })
		}
		require.NoError(t, share.Warm(ctx, all))
		for _, f := range faults { // their requests count below otherwise
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(time.Millisecond) {
				if f.Counts().Open > 0 {
					break
				}
			}
		}
		for _, server := range servers {
			server.Tick() // no kind has seen the present version
		}
		asked := func() (sum int) {
			for _, f := range faults {
				sum += f.Counts().Asked
			}
			return sum
		}
		populated := func(n slot.Slot) (of int) {
			for _, slots := range share.Digest(slot.SetOf(slot.Range{First: n, Last: n})) {
				of += min(1, slots[n].Objects)
			}
			return of
		}
		const n = slot.Slot(7)
		before := asked()
		var drains sync.WaitGroup
		for range 10 {
			drains.Go(func() {
				if err := share.CatchUp(ctx, slot.SetOf(slot.Range{First: n, Last: n})); err != nil {
					t.Error(err)
				}
			})
		}
		drains.Wait()
		got := asked() - before
		t.Logf("%d of %d kinds have objects in the slot; 10 drains asked %d times", populated(n), kinds, got)
		if limit := 20 * populated(n); got > limit || populated(n) < full {
			t.Errorf("%d requests, want at most %d", got, limit)
		}
	})
}

// A drain waits for handlers that have not been told of a deletion that their store shows already, which costs no
// request. The kind has nothing else in the slot.
func TestCatchUpWaitsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := schema.GroupKind{Kind: "ConfigMap"}
		share := delivery.New(delivery.Options{Slots: 8})
		require.NoError(t, share.Shard(kind))
		ctx, cancel := context.WithCancel(t.Context())
		server := deliverytest.NewMemory()
		name := types.NamespacedName{Namespace: "a", Name: "o"}
		if _, err := server.Create(ctx, name, nil); err != nil {
			t.Fatal(err)
		}
		faults := deliverytest.NewFaulty(server.ListWatch("", ""), false)
		inf := share.NewInformer(kind, faults, &corev1.ConfigMap{}, deliverytest.Never, cache.Indexers{})
		busy, heard := make(chan struct{}), false
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, _ any) { <-busy }, // as a predicate that reads from the API server
			DeleteFunc: func(any) { heard = true },
		}); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { inf.RunWithContext(ctx) })
		defer running.Wait()
		defer cancel()
		synctest.Wait()
		n := share.Slot(name.Namespace, name.Name, "")
		set := slot.SetOf(slot.Range{First: n, Last: n})
		share.Hold(set)
		require.NoError(t, share.Warm(ctx, set))
		share.Open(set)
		if _, err := server.Update(ctx, name); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if share.Exists(kind, name) {
			t.Fatal("the store has the object still")
		}
		asked := faults.Counts().Asked
		done := make(chan error, 1)
		go func() { done <- share.CatchUp(ctx, set) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Error("returned before the handler had been told")
			done <- err
		default:
		}
		close(busy)
		synctest.Wait()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !heard || faults.Counts().Asked != asked {
			t.Errorf("heard of the deletion: %v, %d requests, want none", heard, faults.Counts().Asked-asked)
		}
	})
}
