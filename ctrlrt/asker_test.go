package ctrlrt

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func shardConfigMaps(k *kinds) error { return k.shard(configMaps.GroupKind(), "configmap") }

// knownKinds maps ConfigMaps, which have namespaces, and PriorityClasses, which have none.
func knownKinds() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(configMaps, meta.RESTScopeNamespace)
	mapper.Add(priorityClassGVK, meta.RESTScopeRoot)
	return mapper
}

// unserved returns a rota of which there is no API server, and a mapper of known kinds.
func unserved(t *testing.T) (*rota.Rota, meta.RESTMapper) {
	t.Helper()
	r, err := rota.New(&rest.Config{Host: "https://127.0.0.1:1"},
		rota.Options{Name: "x", Namespace: "y", Identity: rota.Identity{Pod: "p"}})
	require.NoError(t, err)
	return r, knownKinds()
}

// readerOf returns a reader of ConfigMaps whose cache has 3 of the 9 that there are. It logs to told, if that is given.
func readerOf(t *testing.T, shard func(*kinds) error, told *[]string) *reader {
	t.Helper()
	r, mapper := unserved(t)
	k := newKinds()
	require.NoError(t, shard(k))
	rd := &reader{
		Reader: fixedCache{items: make([]corev1.ConfigMap, 3)}, rota: r, share: shareOf(r), kinds: k, scheme: scheme.Scheme,
		live: &uncached{Reader: fixedCache{items: make([]corev1.ConfigMap, 9)}, scheme: scheme.Scheme, mapper: mapper},
	}
	if told != nil {
		rd.log = funcr.New(func(_, args string) { *told = append(*told, args) }, funcr.Options{})
	}
	return rd
}

// A controller works on its share of the kinds that it is for, and of those that it owns. It must not take a share of
// another kind for all of it.
func TestListsOfAnotherControllersKindAreWhole(t *testing.T) {
	for name, shard := range map[string]func(k *kinds) error{
		"sharded by its own keys": func(k *kinds) error { return k.shard(configMaps.GroupKind(), "stores") },
		"sharded by its owners": func(k *kinds) error {
			_, err := k.own(configMaps.GroupKind(), "parents")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			rd := readerOf(t, shard, &told)
			ctx := withAsker(t.Context(), rd.rota, &asker{controller: "pushes", owned: map[schema.GroupKind]bool{}})
			for range 2 {
				var list corev1.ConfigMapList
				if err := rd.List(ctx, &list); err != nil || len(list.Items) != 9 {
					t.Errorf("%d objects of another controller's kind, error %v, want all 9", len(list.Items), err)
				}
			}
			if len(told) != 1 || !strings.Contains(told[0], `pushes`) || !strings.Contains(told[0], "asker_test.go:") {
				t.Errorf("told %q, want once, with the controller and the place", told)
			}
			var list corev1.ConfigMapList
			if err := rd.List(ctx, &list, Share); err != nil || len(list.Items) != 3 {
				t.Errorf("%d objects with ctrlrt.Share, error %v, want the share of 3", len(list.Items), err)
			}
		})
	}
}

// While a kind cannot be listed the cache lacks what is in slots that came: reads go to the API server, which says why.
func TestListsOfAKindThatCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rd := readerOf(t, shardConfigMaps, nil)
		share := rd.share
		require.NoError(t, share.Shard(configMaps.GroupKind()))
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no RoleBinding"))
		rd.live.Reader = fixedCache{err: refused}
		lists := func(opts ...client.ListOption) (int, error) {
			var list corev1.ConfigMapList
			err := rd.List(withAsker(t.Context(), rd.rota, &asker{controller: "configmap"}), &list, opts...)
			return len(list.Items), err
		}
		if n, err := lists(); n != 3 || err != nil {
			t.Errorf("%d objects, error %v, want the share of 3", n, err)
		}
		inf := share.NewInformer(configMaps.GroupKind(), &toolscache.ListWatch{
			ListWithContextFunc:  func(context.Context, metav1.ListOptions) (kruntime.Object, error) { return nil, refused },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, refused },
		}, &corev1.ConfigMap{}, deliverytest.Never, nil)
		// client-go's own waits by a clock that it shares with what is not in the bubble.
		require.NoError(t, inf.SetWatchErrorHandlerWithContext(func(context.Context, *toolscache.Reflector, error) {}))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { inf.RunWithContext(ctx) })
		defer running.Wait()
		defer cancel()
		synctest.Wait() // it runs
		one := slot.SetOf(slot.Range{First: 1, Last: 1})
		share.Hold(one)
		require.NoError(t, share.Load(t.Context(), one, table.CauseExpelled, nil, false))
		for _, opts := range [][]client.ListOption{nil, {Share}} {
			if n, err := lists(opts...); !apierrors.IsForbidden(err) {
				t.Errorf("List with %v: %d objects, error %v, want that the API server refuses it", opts, n, err)
			}
		}
		rd.live.Reader = fixedCache{items: make([]corev1.ConfigMap, 9)}
		if n, err := lists(); n != 0 || err != nil {
			t.Errorf("%d objects, error %v, want those among all 9 that are this member's: none", n, err)
		}
	})
}

// Who lists a sharded kind outside of sharded controllers is told once for each place.
func TestListsFromOutsideAreToldOncePerPlace(t *testing.T) {
	var told []string
	rd := readerOf(t, shardConfigMaps, &told)
	list := func(ctx context.Context) int {
		var list corev1.ConfigMapList
		require.NoError(t, rd.List(ctx, &list))
		return len(list.Items)
	}
	outside := t.Context()
	for range 3 {
		if n := list(outside); n != 9 {
			t.Errorf("%d objects from outside, want all 9", n)
		}
	}
	var other corev1.ConfigMapList
	if err := rd.List(outside, &other); err != nil || len(other.Items) != 9 {
		t.Errorf("%d objects from outside, error %v, want all 9", len(other.Items), err)
	}
	if len(told) != 2 || told[0] == told[1] {
		t.Errorf("told %d times, want once for each of two places: %s", len(told), told)
	}
	// The context of a sharded controller says so, to all that runs with it.
	inside := manager.RunnableFunc(func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if n := list(ctx); n != 3 {
			t.Errorf("%d objects in a sharded controller, want its share of 3", n)
		}
		return nil
	})
	require.NoError(t, (asking{inside, rd.rota, &asker{controller: "configmap",
		owned: map[schema.GroupKind]bool{}, chooser: &chooser{}, twin: &twin{}}}).Start(outside))
	if len(told) != 3 || !strings.Contains(told[2], "ctrlrt.Share") || !strings.Contains(told[2], "asker_test.go:") {
		t.Errorf("told %s, want that the controller of the kind lists its share", told)
	}
	ctx := withAsker(outside, rd.rota, &asker{controller: "configmap"})
	if err := rd.List(ctx, &other, Share); err != nil || len(other.Items) != 3 || len(told) != 3 {
		t.Errorf("%d objects with ctrlrt.Share, error %v, told %s; want the share, and nothing told", len(other.Items), err,
			told)
	}
	if len(told) > 0 && !strings.Contains(told[0], "asker_test.go:") {
		t.Errorf("%q does not name the place", told[0])
	}
}

type fixedCache struct {
	cache.Cache
	items []corev1.ConfigMap
	err   error
}

func (c fixedCache) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	l.(*corev1.ConfigMapList).Items = c.items
	return c.err
}

// The own slot of an object is being warmed (held, not open), its owner's slot is this member's: it is in both caches.
func TestListOfAKindInTwoCaches(t *testing.T) {
	r, _ := unserved(t)
	kind, owner := configMaps.GroupKind(), corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
	require.NoError(t, shareOf(r).Shard(kind))
	shareOf(r).Own(kind, owner, true)
	k := newKinds()
	_ = k.shard(kind, "a")
	_, _ = k.own(kind, "b")
	cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Secret", Name: "s", Controller: ptr.To(true),
		}}}}
	main, children := fixedCache{items: []corev1.ConfigMap{cm}}, cache.Cache(fixedCache{items: []corev1.ConfigMap{cm}})
	rd := &reader{Reader: main, rota: r, share: shareOf(r), kinds: k, scheme: scheme.Scheme}
	rd.children.Store(&children)
	var list corev1.ConfigMapList
	if err := rd.List(t.Context(), &list, Share); err != nil || len(list.Items) != 1 {
		t.Errorf("%d items, %v", len(list.Items), err)
	}
}

// oneCached is a cache of one cluster-scoped object. As controller-runtime's it does not look at a key's namespace.
type oneCached struct {
	client.Reader
	name string
}

func (c oneCached) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if key.Name != c.name {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	obj.SetName(key.Name)
	return nil
}

// ownerOfOne returns a reader of PriorityClasses of a member that has the slot of the one with that name.
func ownerOfOne(t *testing.T, name string) (*reader, *server) {
	t.Helper()
	r, mapper := unserved(t)
	share, gate := shareOf(r), r.Adapt(adapter.Grant()).Gate
	require.NoError(t, share.Shard(priorityClassGVK.GroupKind()))
	var mine slot.Set
	mine.Add(share.Slot("", name, ""))
	share.Hold(mine)
	gate.SetDeadline(time.Hour)
	gate.Open(mine, 1)
	k := newKinds()
	require.NoError(t, k.shard(priorityClassGVK.GroupKind(), "classes"))
	live := &server{}
	return &reader{
		Reader: oneCached{name: name}, rota: r, share: shareOf(r), kinds: k, scheme: scheme.Scheme,
		live: &uncached{Reader: live, scheme: scheme.Scheme, mapper: mapper},
	}, live
}

// References and map functions often give an object without a namespace the namespace of what refers to it. A cache and
// the API server take that.
func TestAKeyOfAnObjectWithoutANamespaceMayHaveOne(t *testing.T) {
	rd, live := ownerOfOne(t, "mine")
	for _, namespace := range []string{"", "a", "b", "c"} {
		var class schedulingv1.PriorityClass
		if err := rd.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "mine"}, &class); err != nil ||
			len(live.requests) > 0 {
			t.Errorf("in namespace %q: %v, requests %q; want it from the cache", namespace, err, live.requests)
		}
		if !rd.rota.Owns(priorityClassGVK.GroupKind(), types.NamespacedName{Namespace: namespace, Name: "mine"}) {
			t.Errorf("in namespace %q: the member does not own its object", namespace)
		}
		live.requests = nil
		if err := rd.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "other"}, &class); err != nil ||
			len(live.requests) != 1 {
			t.Errorf("another member's in namespace %q: %v, requests %q; want one", namespace, err, live.requests)
		}
		live.requests = nil
	}
}

func TestRequestsOfAnObjectWithoutANamespaceAreOne(t *testing.T) {
	name := "mine"
	adds := map[string]func(plainQueue, request){
		"Add":      func(q plainQueue, r request) { q.Add(r) },
		"AddAfter": func(q plainQueue, r request) { q.AddAfter(r, time.Millisecond) },
		"AddRateLimited": func(q plainQueue, r request) {
			q.AddRateLimited(r)
		},
		"AddWithOpts": func(q plainQueue, r request) {
			if p, ok := q.(prioritized); ok {
				p.AddWithOpts(priorityqueue.AddOpts{}, r)
				return
			}
			q.Add(r)
		},
	}
	for _, priorities := range []bool{true, false} {
		for what, add := range adds {
			rd, _ := ownerOfOne(t, name)
			c, err := rd.rota.Adapt(adapter.Grant()).NewController("classes", priorityClassGVK.GroupKind(),
				func([]types.NamespacedName, work.Priority) {})
			require.NoError(t, err)
			q := wrapQueue(controller.Options{UsePriorityQueue: ptr.To(priorities)}, c,
				func(key types.NamespacedName) types.NamespacedName { return rd.keyOf(priorityClassGVK, key) },
				func(plainQueue) {})("classes", workqueue.DefaultTypedControllerRateLimiter[request]())
			add(q, request{NamespacedName: types.NamespacedName{Namespace: "a", Name: name}})
			add(q, request{NamespacedName: types.NamespacedName{Namespace: "b", Name: "other"}})
			if got, _ := q.Get(); got.String() != "/"+name {
				t.Errorf("%s with priorities %t: %s in the queue, want the name alone", what, priorities, got)
			}
			q.ShutDown()
		}
	}
}
