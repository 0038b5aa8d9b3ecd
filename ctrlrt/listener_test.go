package ctrlrt

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/test/require"
)

// handlersFrom returns the handler that a source.Kind adds to an informer, its queue, and the handler of its twin.
func handlersFrom(t *testing.T, h handler.EventHandler, predicates ...predicate.Predicate) (stock toolscache.ResourceEventHandler,
	q plainQueue, twin toolscache.ResourceEventHandler, a *answers,
) {
	t.Helper()
	start := func(q plainQueue) toolscache.ResourceEventHandler {
		c := &twinCache{}
		require.NoError(t, source.Kind(c, client.Object(&corev1.ConfigMap{}), h, predicates...).Start(t.Context(), q))
		synctest.Wait()
		return c.informer.added()
	}
	q, a = newPlainQueue(), &answers{}
	t.Cleanup(q.ShutDown)
	return start(q), q, start(a), a
}

// A source is asked for what it would enqueue of an object: nothing comes to its controller's queue, its predicates
// decide, and what they accept of updates only counts, too.
func TestListenersAreAsked(t *testing.T) {
	accept := func(creates, updates func(old, obj client.Object) bool) predicate.Predicate {
		return predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return creates(nil, e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool { return updates(e.ObjectOld, e.ObjectNew) },
		}
	}
	never := func(_, _ client.Object) bool { return false }
	always := func(_, _ client.Object) bool { return true }
	classed := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()["class"] == "mine" })
	mapped := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "of-" + obj.GetName()}}}
	})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	for _, test := range []struct {
		name       string
		handler    handler.EventHandler
		predicates []predicate.Predicate
		want       string // the name that is enqueued
	}{
		{"For", &handler.EnqueueRequestForObject{}, nil, "a"},
		{"Owns", handler.EnqueueRequestForOwner(scheme.Scheme, mapper, &corev1.Secret{}, handler.OnlyControllerOwner()), nil,
			"owner"},
		{"Watches", mapped, nil, "of-a"},
		{"a predicate that accepts it", &handler.EnqueueRequestForObject{}, []predicate.Predicate{predicate.Not(classed)}, "a"},
		{"one that does not", &handler.EnqueueRequestForObject{}, []predicate.Predicate{classed}, ""},
		{"one of two that does not", mapped, []predicate.Predicate{predicate.Funcs{}, classed}, ""},
		{"no creations", &handler.EnqueueRequestForObject{}, []predicate.Predicate{accept(never, always)}, "a"},
		{"changes of the generation", &handler.EnqueueRequestForObject{},
			[]predicate.Predicate{accept(never, func(old, obj client.Object) bool {
				return old.GetGeneration() != obj.GetGeneration()
			})}, "a"},
		{"neither", &handler.EnqueueRequestForObject{}, []predicate.Predicate{accept(never, never)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stock, q, twin, a := handlersFrom(t, test.handler, test.predicates...)
				l, ok := newListener(stock, twin, a)
				if !ok {
					t.Fatalf("the handler %T of controller-runtime cannot be asked by its twin %T", stock, twin)
				}
				obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Generation: 3}}
				obj.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "owner", UID: "1",
					Controller: ptr.To(true)}}
				for range 2 { // answers do not pile up
					got := l.ask(obj)
					if test.want == "" && len(got) > 0 || test.want != "" && (len(got) == 0 || got[0].Name != test.want) {
						t.Errorf("it enqueues %v, want %q", got, test.want)
					}
				}
				if q.Len() > 0 {
					t.Errorf("%d requests came to the controller", q.Len())
				}
				l.OnAdd(obj, false)
				if accepts := test.name == "For" || test.name == "Owns" || test.name == "Watches"; accepts && q.Len() != 1 {
					t.Errorf("%d requests of an event came to the controller, want 1", q.Len())
				}
			})
		})
	}
}

// What is not known to map only must not be called twice for one event, or be asked at all.
func TestWhatCannotBeAsked(t *testing.T) {
	if _, ok := newListener(toolscache.ResourceEventHandlerFuncs{}, nil, &answers{}); ok {
		t.Error("a handler without a twin was asked")
	}
	mapped := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return nil })
	for name, test := range map[string]struct {
		handler handler.EventHandler
		want    bool
	}{
		"a map function":          {mapped, true},
		"the object":              {&handler.EnqueueRequestForObject{}, true},
		"functions":               {handler.Funcs{}, false},
		"a pointer to functions":  {&handler.Funcs{}, false},
		"one of the operator":     {counting{}, false},
		"a pointer to one of it":  {&counting{}, false},
		"no handler, for Builder": {nil, false},
	} {
		if got := isPure(test.handler); got != test.want {
			t.Errorf("%s: isPure is %t, want %t", name, got, test.want)
		}
	}
}

type counting struct{ handler.Funcs }
