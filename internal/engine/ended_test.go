package engine

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

// informedWork works on Secret a/b as operators do that keep their informers running until a signal, not until the
// member has left.
type informedWork struct {
	rota   *Engine
	client *fake.Clientset
	queue  *Queue[cache.ObjectName]
	// signal stops the informers, leave the member, whose Work returns to done.
	signal, leave func()
	done          chan error
}

// workUntilSignal starts it; sync is the controller's. It returns once the member works.
func workUntilSignal(t *testing.T, sync func(context.Context, cache.ObjectName) error) *informedWork {
	t.Helper()
	w := &informedWork{done: make(chan error, 1)}
	w.client = fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}})
	var err error
	if w.rota, err = New(nil, Options{Solo: true}); err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(w.client, deliverytest.Never)
	informer, err := ShareInformer(w.rota, factory, corev1.SchemeGroupVersion.WithKind("Secret"), &corev1.Secret{},
		w.client.CoreV1().Secrets(metav1.NamespaceAll))
	require.NoError(t, err)
	if w.queue, err = NewQueue(w.rota, "test", informer, testInner[cache.ObjectName](t)); err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(any) { w.queue.Add(testItem) },
	}); err != nil {
		t.Fatal(err)
	}
	signal, ends := context.WithCancel(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	w.leave, w.signal = cancel, func() {
		ends()
		factory.Shutdown()
	}
	t.Cleanup(cancel)
	t.Cleanup(ends)
	go func() {
		w.done <- w.rota.Work(ctx, func(ctx context.Context) {
			factory.Start(signal.Done())
			context.AfterFunc(ctx, w.queue.ShutDown)
			sync := w.queue.Admit(sync)
			for {
				item, shutdown := w.queue.Get()
				if shutdown {
					return
				}
				if err := sync(ctx, item); err != nil {
					w.queue.AddAfter(item, time.Hour)
				}
				w.queue.Done(item)
			}
		})
	}()
	synctest.Wait()
	return w
}

// Informers that end with the signal, before the member has left, are told. Nothing is reconciled by their caches, and
// what waits does not count as deleted.
func TestInformersThatStopBeforeTheMemberLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		synced := 0
		w := workUntilSignal(t, func(context.Context, cache.ObjectName) error { synced++; return nil })
		if err := w.rota.Ready(nil); err != nil || synced != 1 {
			t.Fatalf("Ready: %v, %d syncs, want that it works", err, synced)
		}
		w.signal()
		synctest.Wait()
		w.queue.Add(testItem)
		synctest.Wait()
		const stopped = "informer of Secret: it stopped before the member"
		require.ErrorSays(t, w.rota.Ready(nil), stopped)
		w.rota.Adapt(adapter.Grant()).Ending() // the one who stops them says why
		time.Sleep(2 * time.Minute)
		if err := w.rota.Ready(nil); err != nil {
			t.Errorf("Ready: %v, although all ends", err)
		}
		if synced != 1 {
			t.Errorf("%d syncs, want none by a cache that has stopped", synced-1)
		}
		at, q := slotOf(w.rota, types.NamespacedName(testItem)), w.queue.queue.Controller()
		if gone := q.Work.Undone(at); len(gone) > 0 || q.Work.Waits(at) {
			t.Errorf("deletions %v, want none: nobody deleted anything", gone)
		}
		w.leave()
		require.NoError(t, <-w.done)
	})
}

// A deletion that waits when the informers stop before the leave is reconciled by nobody any more. The leave does not
// wait for it.
func TestLeaveWithoutInformersDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workUntilSignal(t, func(context.Context, cache.ObjectName) error { return errors.New("not yet") })
		require.NoError(t, w.client.CoreV1().Secrets("a").Delete(t.Context(), "b", metav1.DeleteOptions{}))
		time.Sleep(time.Second)
		synctest.Wait()
		if !w.queue.queue.Controller().Work.Waits(slotOf(w.rota, types.NamespacedName(testItem))) {
			t.Fatal("no deletion waits")
		}
		w.signal()
		begun := time.Now()
		w.leave()
		require.NoError(t, <-w.done)
		if took := time.Since(begun); took > work.DeletionPatience/2 {
			t.Errorf("the leave waited for %v", took)
		}
	})
}

// withoutWatchList is a ListerWatcher of a client that sends no initial events, as fake ones do.
type withoutWatchList struct{ *cache.ListWatch }

func (withoutWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// An informer that takes the place of one that stopped does so once it has synced: until then what the old one held is
// no deletion. Then what waited is reconciled, however soon it came.
func TestInformersThatAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}})
		r, err := New(nil, Options{Solo: true})
		require.NoError(t, err)
		var lists []chan struct{} // each informer's lists wait for one
		build := func() cache.SharedIndexInformer {
			list := make(chan struct{})
			lists = append(lists, list)
			lw := withoutWatchList{&cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					<-list
					return client.CoreV1().Secrets("").List(ctx, o)
				},
				WatchFuncWithContext: client.CoreV1().Secrets("").Watch,
			}}
			informer := r.NewInformer(secretKind, lw, &corev1.Secret{}, deliverytest.Never, nil)
			withHandler(t, informer)
			return informer
		}
		informer := build()
		q, err := NewQueue(r, "test", informer, testInner[cache.ObjectName](t))
		require.NoError(t, err)
		first, ends := context.WithCancel(t.Context())
		defer ends()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var synced atomic.Int64
		done := make(chan error, 1)
		go func() {
			done <- r.Work(ctx, func(ctx context.Context) {
				go informer.RunWithContext(first)
				serve(ctx, q, func(context.Context, cache.ObjectName) error { synced.Add(1); return nil })
			})
		}()
		close(lists[0])
		time.Sleep(25 * time.Second) // between two checks
		if n := synced.Load(); n != 1 {
			t.Fatalf("%d syncs, want 1", n)
		}
		ends()
		synctest.Wait()
		go build().RunWithContext(ctx)
		q.Add(testItem)
		time.Sleep(time.Second)
		s := slotOf(r, types.NamespacedName(testItem))
		if gone := q.queue.Controller().Work.Undone(s); len(gone) > 0 || synced.Load() != 1 {
			t.Errorf("before the new informer has listed: deletions %v, %d syncs; want none", gone, synced.Load()-1)
		}
		close(lists[1])
		time.Sleep(startPatience)
		if synced.Load() < 2 {
			t.Error("what waited for the new informer was not synced")
		}
		cancel()
		require.NoError(t, <-done)
	})
}

// serve syncs the items of a queue until its context ends.
func serve[T comparable](ctx context.Context, q *Queue[T], sync func(context.Context, T) error) {
	context.AfterFunc(ctx, q.ShutDown)
	sync = q.Admit(sync)
	for {
		item, shutdown := q.Get()
		if shutdown {
			return
		}
		if err := sync(ctx, item); err != nil {
			q.AddRateLimited(item)
		} else {
			q.Forget(item)
		}
		q.Done(item)
	}
}

// withHandler returns an informer that has a handler.
func withHandler(t *testing.T, informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	t.Helper()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
	require.NoError(t, err)
	return informer
}

// workFor runs a member for a minute.
func workFor(t *testing.T, r *Engine, run func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Minute, cancel)
	require.NoError(t, r.Work(ctx, run))
}

// Without a factory that can be shared, an informer of metadata holds the share, and a lister of it works as ever. Two
// informers of one kind with different selectors are in one share: the queue is given the objects of both.
func TestInformersWithoutAFactory(t *testing.T) {
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	about := func(name, app string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: "1",
				Labels: map[string]string{"app": app}}}
	}
	of := func(objects ...metav1.PartialObjectMetadata) cache.ListerWatcher {
		return &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: objects}, nil
			},
			WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
				w := watch.NewFake()
				context.AfterFunc(ctx, w.Stop)
				return w, nil
			},
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r, err := New(nil, Options{Solo: true})
		require.NoError(t, err)
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		example := &metav1.PartialObjectMetadata{}
		first := withHandler(t, r.NewInformer(secretKind, of(about("web", "web")), example, deliverytest.Never, indexers))
		second := withHandler(t, r.NewInformer(secretKind, of(about("mail", "mail")), example, deliverytest.Never, indexers))
		q, err := NewQueue(r, "secrets", first, testInner[cache.ObjectName](t))
		require.NoError(t, err)
		var synced []string
		// What a leave gives up is no longer in the stores: they are read while the member works.
		read := func() {
			for informer, name := range map[cache.SharedIndexInformer]string{first: "web", second: "mail"} {
				got, err := metadatalister.New(informer.GetIndexer(), secrets).Namespace("a").Get(name)
				if err != nil || got.Name != name || len(informer.GetIndexer().List()) != 1 {
					t.Errorf("%s: %v, %v of %d", name, got, err, len(informer.GetIndexer().List()))
				}
			}
		}
		workFor(t, r, func(ctx context.Context) {
			time.AfterFunc(30*time.Second, read)
			go first.RunWithContext(ctx)
			go second.RunWithContext(ctx)
			// The queue is given what there is when the slots open. What comes later it hears of by handlers, and has none here.
			cache.WaitForCacheSync(ctx.Done(), first.HasSynced, second.HasSynced)
			serve(ctx, q, func(_ context.Context, item cache.ObjectName) error {
				synced = append(synced, item.Name)
				return nil
			})
		})
		slices.Sort(synced)
		if !slices.Equal(synced, []string{"mail", "web"}) {
			t.Errorf("synced %v, want the objects of both", synced)
		}
	})
}
