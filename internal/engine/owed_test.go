package engine

import (
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/work"
)

// R13, R15: whatever order a lapse, its end and a worker come in, a deletion is reconciled or waits in the queue.
func TestR15NoOrderOfALapseLosesADeletion(t *testing.T) {
	for _, test := range []struct {
		name string
		// work is what happens to the deletion beside the lapse; it says whether it was reconciled in full.
		work func(c *controllers.Controller, key types.NamespacedName) bool
	}{
		{"reconciled", func(c *controllers.Controller, key types.NamespacedName) bool {
			c.Take(key)
			ctx, ok := c.Admit(t.Context(), key)
			whole := ok && !gate.CutShort(ctx)
			c.Done(key)
			return whole
		}},
		{"added", func(c *controllers.Controller, key types.NamespacedName) bool { return c.Add(key) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := testRota(t)
			c, enqueued := newCounting(t, r)
			key := types.NamespacedName{Namespace: "a", Name: "b"}
			mine := slotsOf(r, key)
			openSlots(r, mine)
			for n := range 3000 {
				*enqueued = 0
				var wg sync.WaitGroup
				wg.Go(func() {
					r.gate.Shut(mine)
					c.Opened(mine, delivery.Opened{}, r.gate.Open(mine, 7))
				})
				dealt := false
				wg.Go(func() { dealt = test.work(c, key) })
				wg.Wait()
				if !dealt && *enqueued == 0 {
					t.Fatalf("try %d: the deletion is neither reconciled nor in the queue", n)
				}
				c.Forget(mine)
			}
		})
	}
}

// newCounting makes a controller that counts the keys that are enqueued. The count is to be looked at when nothing goes
// on.
func newCounting(t *testing.T, r *Engine) (c *controllers.Controller, enqueued *int) {
	t.Helper()
	var mu sync.Mutex
	enqueued = new(int)
	c = testController(t, r, "test", labKind, func(keys []types.NamespacedName, _ work.Priority) {
		mu.Lock()
		defer mu.Unlock()
		*enqueued += len(keys)
	})
	return c, enqueued
}
