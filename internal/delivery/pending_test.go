package delivery_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
)

// What nobody reads is forgotten once it is shown: a controller may write for years and read little.
func TestWritesThatAreShownAreForgotten(t *testing.T) {
	kind := schema.GroupKind{Kind: "ConfigMap"}
	share := delivery.New(delivery.Options{Slots: 8})
	share.KeepWrites()
	if err := share.Shard(kind); err != nil {
		t.Fatal(err)
	}
	server := deliverytest.NewMemory()
	inf := share.NewInformer(kind, server.ListWatch("", ""), &corev1.ConfigMap{}, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() { cancel(); <-ended }()
	go func() { inf.RunWithContext(ctx); close(ended) }()
	all := slot.SetOf(slot.Range{First: 0, Last: 7})
	share.Hold(all)
	if err := share.Load(ctx, all, table.CauseAssigned, nil, false); err != nil {
		t.Fatal(err)
	}
	share.Open(all)
	const writes = 1000
	most := 0
	for n := range writes {
		name := types.NamespacedName{Namespace: "a", Name: fmt.Sprint("o", n)}
		w := share.Write(kind, name, nil)
		obj, err := server.Create(ctx, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.Answered(&metav1.ObjectMeta{Namespace: "a", Name: name.Name, UID: obj.UID, ResourceVersion: obj.Version})
		if n%2 == 0 { // the cache has not shown it yet
			w = share.Write(kind, name, nil)
			if _, err := server.Delete(ctx, name); err != nil {
				t.Fatal(err)
			}
			w.Deleted(&metav1.ObjectMeta{UID: obj.UID})
		}
		if n%100 == 0 {
			if err := share.Reached(ctx, table.Versions{kind.String(): obj.Version}); err != nil {
				t.Fatal(err)
			}
		}
		most = max(most, share.Pending(kind))
	}
	if most > writes/2 {
		t.Errorf("up to %d of %d writes were kept", most, writes)
	}
	if err := share.AwaitWrites(ctx, kind, "", delivery.ViewShare); err != nil {
		t.Fatal(err)
	}
	// One that the store has as it was written is left for the next sweep.
	for n := range writes {
		_, exists, err := inf.GetStore().GetByKey(fmt.Sprint("a/o", n))
		if err != nil || exists != (n%2 == 1) {
			t.Fatalf("o%d exists: %v (%v)", n, exists, err)
		}
	}
}
