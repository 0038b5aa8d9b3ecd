package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

// slotOf returns the slot of a key in a rota by name.
func slotOf(r *Engine, name types.NamespacedName) slot.Slot {
	n, _ := r.share.Locate(schema.GroupKind{Kind: "ConfigMap"}, name)
	return n
}

// slotsOf returns the slots of keys.
func slotsOf(r *Engine, names ...types.NamespacedName) (set slot.Set) {
	for _, name := range names {
		set.Add(slotOf(r, name))
	}
	return set
}

// R13, R15: a deletion whose reconcile is cut short by a lapse, or that comes while the gate is shut, is reconciled
// when the slot opens here again, and is forgotten when it does not.
func TestR15DeletionsAreOwedAfterALapse(t *testing.T) {
	for _, test := range []struct {
		name string
		lose func(r *Engine, c *controllers.Controller, mine slot.Set, key types.NamespacedName)
	}{
		{"cut short", func(r *Engine, c *controllers.Controller, mine slot.Set, key types.NamespacedName) {
			if _, ok := c.Admit(t.Context(), key); !ok {
				t.Fatal("not admitted")
			}
			r.gate.Shut(mine)
			c.Done(key)
		}},
		{"refused", func(r *Engine, c *controllers.Controller, mine slot.Set, key types.NamespacedName) {
			c.Take(key)
			r.gate.Shut(mine)
			if _, ok := c.Admit(t.Context(), key); ok {
				t.Fatal("admitted by a shut gate")
			}
		}},
		{"parked after the deadline, which is noticed later",
			func(r *Engine, c *controllers.Controller, mine slot.Set, key types.NamespacedName) {
				c.Take(key)
				r.gate.SetDeadline(r.now())
				if _, ok := c.Admit(t.Context(), key); ok {
					t.Fatal("admitted after the deadline")
				}
				r.gate.Shut(mine)
				r.gate.SetDeadline(time.Hour)
			}},
		{"parked after the deadline", func(r *Engine, c *controllers.Controller, _ slot.Set, key types.NamespacedName) {
			c.Take(key)
			r.gate.SetDeadline(r.now())
			if _, ok := c.Admit(t.Context(), key); ok {
				t.Fatal("admitted after the deadline")
			}
			r.gate.SetDeadline(time.Hour)
		}},
		{"parked by a drain that a lapse ends", func(r *Engine, c *controllers.Controller, mine slot.Set, key types.NamespacedName) {
			r.gate.Drain(mine, func(slot.Slot) bool { return false }, func(slot.Slot) {})
			c.Take(key)
			if _, ok := c.Admit(t.Context(), key); ok {
				t.Fatal("admitted although the slot has been drained")
			}
			r.gate.Shut(mine)
		}},
		{"added while shut", func(r *Engine, c *controllers.Controller, mine slot.Set, key types.NamespacedName) {
			r.gate.Shut(mine)
			if c.Add(key) {
				t.Fatal("added to the queue of a shut gate")
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := testRota(t)
			var got []types.NamespacedName
			c := testController(t, r, "test", schema.GroupKind{Kind: "ConfigMap"},
				func(keys []types.NamespacedName, _ work.Priority) {
					got = append(got, keys...)
				})
			key := types.NamespacedName{Namespace: "a", Name: "b"}
			mine := slotsOf(r, key)
			openSlots(r, mine)
			test.lose(r, c, mine, key)
			c.Opened(mine, delivery.Opened{}, r.gate.Open(mine, 7))
			if !slices.Equal(got, []types.NamespacedName{key}) {
				t.Fatalf("enqueued when the slot opened again: %v, want %v", got, key)
			}
			got = nil
			test.lose(r, c, mine, key)
			r.gate.Shut(mine)
			r.share.Release(mine)
			c.Forget(mine)
			r.share.Hold(mine)
			c.Opened(mine, delivery.Opened{}, r.gate.Open(mine, 9))
			if len(got) != 0 {
				t.Errorf("enqueued after the slot was another's: %v, want nothing", got)
			}
		})
	}
}

// R8: what this member wrote counts among the versions that the next owner waits for.
func TestR8WroteCounts(t *testing.T) {
	r := testRota(t)
	_, _ = testQueue(t, r)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", ResourceVersion: "17"}}
	r.Wrote(t.Context(), secretKind, secret)
	var mine slot.Set
	mine.Add(slotOf(r, types.NamespacedName{Namespace: "a", Name: "b"}))
	if got := r.share.Versions(mine)["Secret"]; got != "17" {
		t.Errorf("version of the slot is %q, want 17", got)
	}
}

// R15: with key UID, a key that waits for an object goes where its namesake is, and waits nowhere else.
func TestR15AKeyWaitsInOneSlot(t *testing.T) {
	r, err := New(&rest.Config{Host: "https://127.0.0.1:1"},
		Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"}, Key: slot.KeyUID})
	require.NoError(t, err)
	kind := schema.GroupKind{Kind: "ConfigMap"}
	c := testController(t, r, "test", kind, ignore)
	inf := r.share.NewInformer(kind, &cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	key := types.NamespacedName{Namespace: "a", Name: "b"}
	obj := func(uid string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: types.UID(uid)}}
	}
	a, b := r.share.Slot("", "", "p"), r.share.Slot("", "", "namesake")
	if a == b {
		t.Fatal("the two are in one slot")
	}
	var open, both slot.Set
	open.Add(a)
	both.Add(a)
	both.Add(b)
	r.share.Hold(both) // b is on its way here
	r.gate.SetDeadline(time.Hour)
	r.gate.Open(open, 7)
	// p is there and waits in the queue.
	_ = inf.GetIndexer().Add(obj("p"))
	if !c.Add(key) {
		t.Fatal("not added")
	}
	// It is deleted and created again, with another UID, in slot b, which is being warmed.
	_ = inf.GetIndexer().Update(obj("namesake"))
	c.Add(key) // the handler's DELETE
	c.Take(key)
	if _, ok := c.Admit(t.Context(), key); ok {
		t.Fatal("admitted")
	}
	c.Done(key)
	if w := waitingIn(c, a); len(w) != 0 {
		t.Errorf("%v still waits in the slot of the first", w)
	}
	if _, there := r.controllers.Oldest()[a]; there {
		t.Error("slot a will be reported as stalled")
	}
	// the namesake's slot opens, it is reconciled, and deleted
	_ = inf.GetIndexer().Delete(obj("namesake"))
	if c.Work.Waits(a) {
		t.Error("a drain of slot a waits for a deletion that nobody will ever deal with")
	}
}

// BenchmarkKey is what a rota adds to the way of a key from the queue to its reconcile and back, while others wait.
func BenchmarkKey(b *testing.B) {
	r, err := New(&rest.Config{Host: "https://127.0.0.1:1"},
		Options{Name: "website", Namespace: "operators", Identity: Identity{Pod: "web-0"}})
	require.NoError(b, err)
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
