package engine

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

type innerQueue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

func testQueue(t *testing.T, r *Engine) (*Queue[cache.ObjectName], innerQueue) {
	t.Helper()
	inner := testInner[cache.ObjectName](t)
	q, err := NewQueue(r, "test", testInformer(r), inner)
	require.NoError(t, err)
	return q, inner
}

func testInner[T comparable](t *testing.T) workqueue.TypedRateLimitingInterface[T] {
	t.Helper()
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[T](0, 0))
	t.Cleanup(inner.ShutDown)
	return inner
}

func testInformer(r *Engine) cache.SharedIndexInformer {
	return r.share.NewInformer(secretKind, &cache.ListWatch{}, &corev1.Secret{}, 0, nil)
}

// own makes r the owner of the slot of an object.
func own(r *Engine, item cache.ObjectName) slot.Set {
	mine := slotsOf(r, types.NamespacedName(item))
	openSlots(r, mine)
	return mine
}

var testItem = cache.ObjectName{Namespace: "a", Name: "b"}

func TestQueueLeavesOutItemsOfOthers(t *testing.T) {
	r := testRota(t)
	q, inner := testQueue(t, r)
	inner.AddRateLimited(testItem) // a failure from when it was ours
	q.Add(testItem)
	q.AddAfter(testItem, 0)
	q.AddRateLimited(testItem)
	if n := inner.NumRequeues(testItem); n != 0 {
		t.Errorf("an item of another member has %d failures, want them forgotten", n)
	}
	if item, _ := inner.Get(); item != testItem || inner.Len() != 0 {
		t.Errorf("in the queue: %v and %d more, want only what the test added", item, inner.Len())
	}
	own(r, testItem)
	q.Add(testItem)
	inner.Done(testItem)
	if item, _ := q.Get(); item != testItem {
		t.Errorf("got %v, want the item", item)
	}
}

func TestQueueAdmit(t *testing.T) {
	boom := errors.New("boom")
	for _, test := range []struct {
		name      string
		sync      func(r *Engine, mine slot.Set) error
		late      bool // the slot is lost before
		synced    bool
		wantError error
	}{
		{name: "admitted", sync: func(*Engine, slot.Set) error { return nil }, synced: true},
		{name: "failed", sync: func(*Engine, slot.Set) error { return boom }, synced: true, wantError: boom},
		{name: "cut short", sync: func(r *Engine, mine slot.Set) error { r.gate.Shut(mine); return boom }, synced: true},
		{name: "lost before", late: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := testRota(t)
			q, _ := testQueue(t, r)
			mine := own(r, testItem)
			synced := false
			sync := q.Admit(func(ctx context.Context, _ cache.ObjectName) error {
				synced = true
				if len(slotsFrom(ctx, r)) != 1 {
					t.Error("the context does not say which slot it is for")
				}
				if n := r.gate.InFlight(); n != 1 {
					t.Errorf("%d in flight during sync, want 1", n)
				}
				return test.sync(r, mine)
			})
			q.Add(testItem)
			item, _ := q.Get()
			if test.late {
				r.gate.Shut(mine)
			}
			err := sync(t.Context(), item)
			q.Done(item)
			if synced != test.synced || !errors.Is(err, test.wantError) || test.wantError == nil && err != nil {
				t.Errorf("synced %t with error %v, want %t, %v", synced, err, test.synced, test.wantError)
			}
			if n := r.gate.InFlight(); n != 0 {
				t.Errorf("%d in flight after Done, want 0", n)
			}
		})
	}
}

// labelled is an item that is no name.
type labelled struct{ object, reason string }

func TestNewQueueTakesItemsOfAllKinds(t *testing.T) {
	type key string
	type name struct{ Namespace, Name string }
	for kind, test := range map[string]func(*testing.T){
		"cache.ObjectName": func(t *testing.T) { takesItems(t, testItem, cache.ObjectName{Namespace: "c", Name: "d"}) },
		"types.NamespacedName": func(t *testing.T) {
			takesItems(t, types.NamespacedName(testItem),
				types.NamespacedName{Name: "x"})
		},
		"a struct of one's own":  func(t *testing.T) { takesItems(t, name(testItem), name{Name: "x"}) },
		"string":                 func(t *testing.T) { takesItems(t, "a/b", "c/not-mine") },
		"a string of one's own":  func(t *testing.T) { takesItems(t, key("a/b"), key("c/not-mine")) },
		"string, not namespaced": func(t *testing.T) { takesItems(t, "b", "not-mine") },
	} {
		t.Run(kind, test)
	}
}

func takesItems[T ObjectName](t *testing.T, mine, foreign T) {
	r := testRota(t)
	q, err := NewQueue(r, "test", testInformer(r), testInner[T](t))
	require.NoError(t, err)
	object, err := namesAsItems[T]().Name(mine)
	require.NoError(t, err)
	checkItems(t, r, q, object, mine, foreign)
}

// checkItems checks that a slot brings mine, of one object, and that the queue takes it and leaves foreign out.
func checkItems[T comparable](t *testing.T, r *Engine, q *Queue[T], object types.NamespacedName, mine, foreign T) {
	t.Helper()
	object = r.share.KeyOf(secretKind, object)
	set := own(r, cache.ObjectName(object))
	q.queue.Controller().Opened(set, delivery.Opened{Changed: []types.NamespacedName{object}}, nil)
	if item, _ := q.Get(); item != mine {
		t.Fatalf("got %v of the slot, want %v", item, mine)
	}
	q.Done(mine)
	q.Add(foreign)
	q.Add(mine)
	if item, _ := q.Get(); item != mine || q.Len() != 0 {
		t.Errorf("got %v and %d more, want only %v", item, q.Len(), mine)
	}
}

// A key that names no object is nobody's: it is left out, whoever adds it, and told of.
func TestQueueLeavesOutWhatNamesNoObject(t *testing.T) {
	r, log := loggedRota(t)
	inner := testInner[string](t)
	q, err := NewQueue(r, "test", testInformer(r), inner)
	require.NoError(t, err)
	for _, item := range []string{"a/b/c", "a/", ""} {
		q.Add(item)
		q.AddAfter(item, 0)
		q.AddRateLimited(item)
	}
	if n := q.Len(); n != 0 {
		t.Errorf("%d items in the queue, want none", n)
	}
	inner.Add("a/b/c")
	item, _ := q.Get()
	synced := false
	if err := q.Admit(func(context.Context, string) error { synced = true; return nil })(t.Context(), item); err != nil ||
		synced {
		t.Errorf("synced %t, error %v; want neither", synced, err)
	}
	q.Done(item)
	log.wants(t, 1, "names no object", "a/b/c")
}

// A kind that has no namespaces is hashed by the name, whatever namespace an item has.
func TestItemsOfAKindWithoutNamespacesAreHashedByName(t *testing.T) {
	r := testRota(t)
	q, _ := testQueue(t, r)
	kind := secretKind
	r.share.Own(schema.GroupKind{Kind: "Pod"}, kind, false)
	own(r, cache.ObjectName{Name: testItem.Name})
	q.Add(testItem)
	if item, _ := q.Get(); item != testItem {
		t.Fatalf("got %v, want the item", item)
	}
	if !r.Owns(kind, types.NamespacedName(testItem)) {
		t.Error("the member does not own its object")
	}
	q.Done(testItem)
}

// failures checks how often an item was added with AddRateLimited since it was forgotten.
func failures(t *testing.T, inner workqueue.TypedRateLimitingInterface[labelled], item labelled, want int) {
	t.Helper()
	if n := inner.NumRequeues(item); n != want {
		t.Errorf("%v has %d failures, want %d", item, n, want)
	}
}

// An item that waits while another one about its object is synced keeps its backoff, and counts as waiting all the
// time: the object may be gone, and then its slot must not move. Nobody else begins with the object before the other's
// flight has ended.
func TestItemsThatBounce(t *testing.T) {
	r := testRota(t)
	inner := testInner[labelled](t)
	asked := func() {}
	q, err := NewQueueOf(r, "test", testInformer(r), inner, Items[labelled]{
		Name: func(item labelled) (types.NamespacedName, error) {
			asked()
			return types.NamespacedName{Name: item.object}, nil
		},
		Item: func(name types.NamespacedName) labelled { return labelled{name.Name, "opened"} },
	})
	require.NoError(t, err)
	set := own(r, cache.ObjectName{Name: "a"})
	key := types.NamespacedName{Name: "a"}
	first, second := labelled{"a", "first"}, labelled{"a", "second"}
	get := func(want labelled) {
		t.Helper()
		if item, _ := q.Get(); item != want {
			t.Fatalf("got %v, want %v", item, want)
		}
	}
	q.Add(first)
	get(first)
	sync := q.Admit(func(context.Context, labelled) error {
		q.AddRateLimited(second)
		get(second)
		failures(t, inner, second, 1)
		asked = func() {
			if s := slotOf(r, key); len(waitingIn(q.queue.Controller(), s)) == 0 {
				t.Error("the object waits nowhere for a moment")
			}
		}
		bounced := q.Admit(func(context.Context, labelled) error { t.Error("two workers sync one object"); return nil })
		require.NoError(t, bounced(t.Context(), second))
		asked = func() {}
		q.Forget(second) // as a worker does with an item whose sync returns nil
		q.Done(second)
		failures(t, inner, second, 1)
		return nil
	})
	require.NoError(t, sync(t.Context(), first))
	r.gate.Drain(set, func(slot.Slot) bool { return false }, func(slot.Slot) {
		claimed := false
		q.queue.Controller().Work.With(func(k *testKeys) { claimed = k.Claim(key, second) })
		if claimed {
			t.Error("the object may be synced again before its flight has ended")
		}
	})
	q.Done(first)
	get(second)
	q.Forget(second)
	q.Done(second)
	failures(t, inner, second, 0)
}

// Workers tell that they run by asking the queue.
func TestQueuesTellThatWorkersRun(t *testing.T) {
	r := testRota(t)
	q, inner := testQueue(t, r)
	inner.Add(testItem)
	if waits := r.waitsFor(); len(waits) != 2 {
		t.Errorf("waits for %q, want an informer and workers", waits)
	}
	q.Get()
	select {
	case <-q.queue.Controller().Begun():
	default:
		t.Error("the workers' first Get does not show that they run")
	}
}
