package ctrlrt

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/rota-dev/rota/fair"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/work"
)

func TestForeignKeysStayOutOfTheQueue(t *testing.T) {
	r, _ := unserved(t)
	c, err := r.Adapt(adapter.Grant()).NewController("test", schema.GroupKind{Kind: "ConfigMap"}, func([]types.NamespacedName, work.Priority) {})
	noError(t, err)
	inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]())
	defer inner.ShutDown()
	made := wrapQueue(controller.Options{
		NewQueue: func(string, workqueue.TypedRateLimiter[request]) plainQueue {
			return inner
		},
	}, c, func(key types.NamespacedName) types.NamespacedName { return key }, func(plainQueue) {})("test", nil)
	key := request{NamespacedName: types.NamespacedName{Namespace: "a", Name: "b"}}
	made.Add(key) // nothing is owned
	if n := inner.Len(); n != 0 {
		t.Errorf("%d keys in the queue of a member that owns nothing, want 0", n)
	}
	made.AddAfter(key, time.Millisecond)
	made.AddRateLimited(key)
	if n := inner.NumRequeues(key); n != 0 {
		t.Errorf("a foreign key was rate limited %d times", n)
	}
}

// A fair queue gives lower priorities turns, so the queue around it does not give them again.
func TestArrivalsHaveOneRule(t *testing.T) {
	for _, c := range []struct {
		name  string
		of    controller.Options
		every int
	}{
		{"default", controller.Options{}, lowTurn},
		{"fair", controller.Options{NewQueue: FairQueue(fair.Options[request]{})}, 0},
	} {
		q := wrapQueue(c.of, nil, nil, func(plainQueue) {})(c.name, nil)
		got := q.(*priorityQueue)
		got.priorities.ShutDown()
		if got.arrivals.every != c.every {
			t.Errorf("%s: one turn in %d, want %d", c.name, got.arrivals.every, c.every)
		}
	}
	a := arrivals{every: 2}
	a.came([]request{{}})
	for turn, want := range []bool{false, true, false, true} {
		if _, theirs := a.next(); theirs != want {
			t.Errorf("turn %d is theirs: %v, want %v", turn, theirs, want)
		}
	}
	a.taken(request{})
	if _, theirs := a.next(); theirs {
		t.Error("a turn without an item")
	}
}
