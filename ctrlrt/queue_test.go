package ctrlrt

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/work"
)

func TestForeignKeysStayOutOfTheQueue(t *testing.T) {
	r, err := rota.New(&rest.Config{Host: "https://127.0.0.1:1"}, rota.Options{Name: "test", Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Adapt(adapter.Grant()).NewController("test", schema.GroupKind{Kind: "ConfigMap"}, func([]types.NamespacedName, work.Priority) {})
	if err != nil {
		t.Fatal(err)
	}
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
