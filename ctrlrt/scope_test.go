package ctrlrt

import (
	"context"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
)

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
	r, err := rota.New(&rest.Config{Host: "https://127.0.0.1:1"},
		rota.Options{Name: "x", Namespace: "y", Identity: rota.Identity{Pod: "p"}})
	noError(t, err)
	share, gate := shareOf(r), r.Adapt(adapter.Grant()).Gate
	noError(t, share.Shard(priorityClassGVK.GroupKind()))
	var mine slot.Set
	mine.Add(share.Slot("", name, ""))
	share.Hold(mine)
	gate.SetDeadline(time.Hour)
	gate.Open(mine, 1)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(priorityClassGVK, meta.RESTScopeRoot)
	k := newKinds()
	noError(t, k.shard(priorityClassGVK.GroupKind(), "classes"))
	live := &server{}
	return &reader{
		Reader: oneCached{name: name}, rota: r, kinds: k, scheme: scheme.Scheme,
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
			noError(t, err)
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
