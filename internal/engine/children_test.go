package engine

import (
	"context"
	"slices"
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
	if err != nil {
		t.Fatal(err)
	}
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

// A second queue whose items are children is one about their owners: it is given the owners of a slot that comes,
// whether they exist or not, and finds the children itself.
func TestSecondQueueAboutChildren(t *testing.T) {
	type orphan struct{ namespace, owner, pod string }
	child := func(name, owner string) *corev1.Pod {
		yes := true
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID(owner), Controller: &yes}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name,
			OwnerReferences: []metav1.OwnerReference{ref}}}
	}
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(child("one", "gone"), child("two", "gone"), child("three", "here"),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "here", UID: "here"}})
		r, err := New(nil, Options{Solo: true})
		if err != nil {
			t.Fatal(err)
		}
		factory := informers.NewSharedInformerFactory(client, deliverytest.Never)
		owners, err := ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("ConfigMap"), &corev1.ConfigMap{},
			client.CoreV1().ConfigMaps(metav1.NamespaceAll))
		owners = withHandler(t, owners, err)
		pods, err := ShareInformer(r, factory, corev1.SchemeGroupVersion.WithKind("Pod"), &corev1.Pod{},
			client.CoreV1().Pods(metav1.NamespaceAll), Children{Of: schema.GroupKind{Kind: "ConfigMap"}})
		pods = withHandler(t, pods, err)
		jobs, err := NewQueue(r, "jobs", owners, testInner[string](t))
		if err != nil {
			t.Fatal(err)
		}
		jobs.OnReset(nil)
		orphans, err := NewQueueOf(r, "orphans", owners, testInner[orphan](t), Items[orphan]{
			Name: func(o orphan) (types.NamespacedName, error) {
				return types.NamespacedName{Namespace: o.namespace, Name: o.owner}, nil
			},
			Item: func(owner types.NamespacedName) orphan { return orphan{owner.Namespace, owner.Name, ""} },
		})
		if err != nil {
			t.Fatal(err)
		}
		orphans.OnReset(nil)
		var synced, cleaned []string
		workFor(t, r, func(ctx context.Context) {
			factory.Start(ctx.Done())
			go serve(ctx, jobs, func(_ context.Context, key string) error { synced = append(synced, key); return nil })
			serve(ctx, orphans, func(_ context.Context, o orphan) error {
				if _, exists, _ := owners.GetIndexer().GetByKey(o.namespace + "/" + o.owner); exists {
					return nil
				}
				for _, obj := range pods.GetIndexer().List() {
					pod := obj.(*corev1.Pod)
					if by := metav1.GetControllerOf(pod); by != nil && by.Name == o.owner && (o.pod == "" || o.pod == pod.Name) {
						cleaned = append(cleaned, pod.Name)
					}
				}
				return nil
			})
			factory.Shutdown()
		})
		slices.Sort(synced)
		slices.Sort(cleaned)
		if !slices.Equal(synced, []string{"a/gone", "a/here"}) || !slices.Equal(cleaned, []string{"one", "two"}) {
			t.Errorf("synced %v, cleaned up %v; want both owners, and the children of the one that is gone", synced, cleaned)
		}
	})
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
		if err != nil {
			t.Fatal(err)
		}
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		example := &metav1.PartialObjectMetadata{}
		first := withHandler(t, r.NewInformer(secretKind, of(about("web", "web")), example, deliverytest.Never, indexers), nil)
		second := withHandler(t, r.NewInformer(secretKind, of(about("mail", "mail")), example, deliverytest.Never, indexers), nil)
		q, err := NewQueue(r, "secrets", first, testInner[cache.ObjectName](t))
		if err != nil {
			t.Fatal(err)
		}
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
