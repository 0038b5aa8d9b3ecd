package engine

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// BenchmarkKey is what a rota adds to the way of a key from the queue to its reconcile and back, while others wait.
func BenchmarkKey(b *testing.B) {
	r, err := New(&rest.Config{Host: "https://127.0.0.1:1"},
		Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"}})
	noError(b, err)
	c := testController(b, r, "c", secretKind, ignore)
	all := r.cfg.Slots.All()
	openSlots(r, all)
	keys := make([]types.NamespacedName, 1000)
	for i := range keys {
		keys[i] = types.NamespacedName{Namespace: "a", Name: fmt.Sprint(i)}
		c.Add(keys[i])
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		key := keys[i%len(keys)]
		c.Take(key)
		if _, ok := c.Admit(b.Context(), key); !ok {
			b.Fatal("not admitted")
		}
		c.Add(key)
		c.Done(key)
	}
}
