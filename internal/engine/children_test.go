package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/test/deliverytest"
)

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
func withHandler(t *testing.T, informer cache.SharedIndexInformer, err error) cache.SharedIndexInformer {
	t.Helper()
	noError(t, err)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
		t.Fatal(err)
	}
	return informer
}

// workFor runs a member for a minute.
func workFor(t *testing.T, r *Engine, run func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Minute, cancel)
	if err := r.Work(ctx, run); err != nil {
		t.Error(err)
	}
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
		noError(t, err)
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		example := &metav1.PartialObjectMetadata{}
		first := withHandler(t, r.NewInformer(secretKind, of(about("web", "web")), example, deliverytest.Never, indexers), nil)
		second := withHandler(t, r.NewInformer(secretKind, of(about("mail", "mail")), example, deliverytest.Never, indexers), nil)
		q, err := NewQueue(r, "secrets", first, testInner[cache.ObjectName](t))
		noError(t, err)
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
