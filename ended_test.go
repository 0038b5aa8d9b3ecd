package rota

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// Informers that end with the signal, before the member has left, are told. Nothing is reconciled by their caches, and
// what waits does not count as deleted.
func TestInformersThatStopBeforeTheMemberLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}})
		r, err := New(nil, Options{Solo: true})
		if err != nil {
			t.Fatal(err)
		}
		factory := informers.NewSharedInformerFactory(client, 0)
		informer, err := ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
			client.CoreV1().Secrets(metav1.NamespaceAll))
		if err != nil {
			t.Fatal(err)
		}
		q, err := NewQueue(r, "test", informer, testInner[cache.ObjectName](t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
			t.Fatal(err)
		}
		signal, ends := context.WithCancel(t.Context())
		defer ends()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		synced := 0
		done := make(chan error, 1)
		go func() {
			done <- r.Work(ctx, func(ctx context.Context) {
				factory.StartWithContext(signal)
				context.AfterFunc(ctx, q.ShutDown)
				sync := q.Admit(func(context.Context, cache.ObjectName) error { synced++; return nil })
				for {
					item, shutdown := q.Get()
					if shutdown {
						return
					}
					_ = sync(ctx, item)
					q.Done(item)
				}
			})
		}()
		synctest.Wait()
		if err := r.Ready(nil); err != nil || synced != 1 {
			t.Fatalf("Ready: %v, %d syncs, want that it works", err, synced)
		}
		ends()
		factory.Shutdown()
		synctest.Wait()
		q.Add(testItem)
		synctest.Wait()
		if err := r.Ready(nil); err == nil || !strings.Contains(err.Error(), "informer of Secret: it stopped before the member") {
			t.Errorf("Ready: %v, want that the informer stopped", err)
		}
		if synced != 1 {
			t.Errorf("%d syncs, want none by a cache that has stopped", synced-1)
		}
		name := types.NamespacedName(testItem)
		if gone := q.controller.undone(slotOf(r, name)); len(gone) > 0 || q.controller.deletions(slotOf(r, name)) {
			t.Errorf("deletions %v, want none: nobody deleted anything", gone)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
