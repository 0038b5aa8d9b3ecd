package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/gate"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
)

// oneWorker gives each member one worker, which takes a second for a deletion. The result is by whom each was
// reconciled.
func oneWorker(l *lab) (dealt func() map[types.NamespacedName][]string) {
	var mu sync.Mutex
	by := map[types.NamespacedName][]string{}
	l.worker = func(m *labMember) func([]types.NamespacedName) {
		line := make(chan types.NamespacedName, 10_000)
		go func() {
			for {
				var key types.NamespacedName
				select {
				case key = <-line:
				case <-l.over:
					return
				}
				m.controller.Take(key)
				if ctx, ok := m.controller.Admit(l.t.Context(), key); ok && !m.share.Exists(labKind, key) {
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
						mu.Lock()
						by[key] = append(by[key], m.pod)
						mu.Unlock()
					}
				}
				m.controller.Done(key)
			}
		}()
		return func(keys []types.NamespacedName) {
			for _, key := range keys {
				if m.controller.Add(key) {
					line <- key
				}
			}
		}
	}
	return func() map[types.NamespacedName][]string {
		mu.Lock()
		defer mu.Unlock()
		return by
	}
}

// R15: 80 deletions of a second each, and one worker a member. One member leaves: whatever its worker has not come to
// is reconciled by the other one, each once.
func TestR15WaitingDeletionsAreHandedOver(t *testing.T) {
	inLab(t, func(l *lab) {
		dealt := oneWorker(l)
		a, b := l.start("web-0"), l.start("web-1")
		time.Sleep(time.Minute)
		var keys []types.NamespacedName
		for n := range 80 {
			key := types.NamespacedName{Namespace: "a", Name: fmt.Sprint("object-", n)}
			if _, err := l.objects.Create(t.Context(), key, nil); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		time.Sleep(10 * time.Second)
		for _, key := range keys {
			if _, err := l.objects.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		begun := time.Now()
		a.stop()
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("a left after %v, want it not to wait for its deletions", took)
		}
		a.want("in the end", "rota_deletions_abandoned_total", "", 0)
		time.Sleep(2 * time.Minute)
		byA := 0
		for _, key := range keys {
			by := dealt()[key]
			if len(by) != 1 {
				t.Errorf("%s was reconciled by %v, want it once", key, by)
			}
			if slices.Contains(by, "web-0") {
				byA++
			}
		}
		if n, _ := b.value("rota_deletions_inherited_total", ""); byA == 0 || n == 0 {
			t.Errorf("a reconciled %d deletions and left %v; want some each", byA, n)
		}
	})
}

// R15: deletions that former owners left are reconciled once their slots open, by every controller of their kind; those
// of a kind that has none, and those that there is no room for, are counted.
func TestR15DeletionsAreInherited(t *testing.T) {
	r := testRota(t)
	var got []types.NamespacedName
	for _, name := range []string{"one", "two"} {
		if _, err := r.newTestController(name, schema.GroupKind{Kind: "ConfigMap"},
			func(keys []types.NamespacedName, p work.Priority) {
				if p == work.PriorityEvent {
					got = append(got, keys...)
				}
			}); err != nil {
			t.Fatal(err)
		}
	}
	objects := r.holder()
	key := types.NamespacedName{Namespace: "a", Name: "b"}
	s, mine := slotOf(r, key), slotsOf(r, key)
	gone := []table.Gone{
		{Slot: s, Kind: "ConfigMap", Namespace: "a", Name: "b"},
		{Slot: s, Kind: "Secret", Namespace: "a", Name: "b"},
	}
	r.share.Hold(mine)
	objects.Inherit(gone)
	if got != nil {
		t.Errorf("%v are enqueued before the slot is open", got)
	}
	if handedOn := objects.Undone(s, 1000); len(handedOn) != 2 || handedOn[0] != gone[0] {
		t.Errorf("handed on: %v, want what was inherited, by each controller", handedOn)
	}
	r.gate.SetDeadline(time.Hour)
	objects.Open(t.Context(), mine, 7)()
	if !slices.Equal(got, []types.NamespacedName{key, key}) {
		t.Errorf("enqueued: %v, want %v by each controller", got, key)
	}
	if n, _ := metricOf(t, r, "rota_deletions_abandoned_total"); n != 1 {
		t.Errorf("%v deletions are counted as abandoned, want that of the Secret", n)
	}
	objects.Inherit(gone[:1])
	for _, c := range r.controllers.All() {
		c.Add(key)
	}
	if left := objects.Undone(s, table.GoneSize(gone[:1])); len(left) != 1 {
		t.Errorf("%v are left where there is room for one", left)
	}
	if n, _ := metricOf(t, r, "rota_deletions_abandoned_total"); n != 2 {
		t.Errorf("%v are counted as abandoned, want one more", n)
	}
}

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
