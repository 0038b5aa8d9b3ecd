package rota

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/rota-dev/rota/delivery"
	"github.com/rota-dev/rota/slot"
)

type innerQueue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

func testQueue(t *testing.T, r *Rota) (*Queue[cache.ObjectName], innerQueue) {
	t.Helper()
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](0, 0))
	t.Cleanup(inner.ShutDown)
	informer := r.Share().NewInformer(schema.GroupKind{Kind: "Secret"}, &cache.ListWatch{}, &corev1.Secret{}, 0, nil)
	q, err := NewQueue(r, "test", informer, inner)
	if err != nil {
		t.Fatal(err)
	}
	return q, inner
}

// own makes r the owner of the slot of an object.
func own(r *Rota, item cache.ObjectName) slot.Set {
	var mine slot.Set
	mine.Add(slotOf(r, types.NamespacedName(item)))
	r.share.Hold(mine)
	r.gate.SetDeadline(time.Hour)
	r.gate.Open(mine, 7)
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
		sync      func(r *Rota, mine slot.Set) error
		late      bool // the slot is lost before
		synced    bool
		wantError error
	}{
		{name: "admitted", sync: func(*Rota, slot.Set) error { return nil }, synced: true},
		{name: "failed", sync: func(*Rota, slot.Set) error { return boom }, synced: true, wantError: boom},
		{name: "cut short", sync: func(r *Rota, mine slot.Set) error { r.gate.Shut(mine); return boom }, synced: true},
		{name: "lost before", late: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := testRota(t)
			q, _ := testQueue(t, r)
			mine := own(r, testItem)
			synced := false
			sync := q.Admit(func(ctx context.Context, _ cache.ObjectName) error {
				synced = true
				if len(slotsFrom(ctx)) != 1 {
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

// A worker that gives an item up without Admit does not hold its slot back for ever.
func TestQueueDoneWithoutAdmit(t *testing.T) {
	r := testRota(t)
	q, _ := testQueue(t, r)
	own(r, testItem)
	q.Add(testItem)
	item, _ := q.Get()
	q.Done(item)
	if waiting := q.Controller().waitingIn(slotOf(r, types.NamespacedName(item))); len(waiting) != 0 {
		t.Errorf("waiting after Done: %v, want nothing", waiting)
	}
}

func TestQueueGetsWhatASlotBrings(t *testing.T) {
	r := testRota(t)
	q, _ := testQueue(t, r)
	mine := own(r, testItem)
	q.Controller().opened(mine, delivery.Opened{Changed: []types.NamespacedName{types.NamespacedName(testItem)}}, nil)
	if item, _ := q.Get(); item != testItem {
		t.Errorf("got %v, want the object of the slot", item)
	}
}

func TestWrapQueueTakesAnyItem(t *testing.T) {
	r := testRota(t)
	var q *Queue[string]
	c, err := r.NewController("test", schema.GroupKind{Kind: "Secret"}, func(keys []types.NamespacedName, _ Priority) {
		for _, key := range keys {
			q.Add(key.String())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer inner.ShutDown()
	q = WrapQueue(c, inner, func(item string) types.NamespacedName {
		namespace, name, _ := cache.SplitMetaNamespaceKey(item)
		return types.NamespacedName{Namespace: namespace, Name: name}
	})
	mine := own(r, testItem)
	c.opened(mine, delivery.Opened{Changed: []types.NamespacedName{types.NamespacedName(testItem)}}, nil)
	q.Add("c/not-mine")
	var got []string
	for q.Len() > 0 {
		item, _ := q.Get()
		got = append(got, item)
	}
	if !slices.Equal(got, []string{"a/b"}) {
		t.Errorf("got %v, want a/b", got)
	}
}
