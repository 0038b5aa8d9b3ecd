package engine

import (
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/deliverytest"
)

// R8: of two controllers, the one whose children cannot be listed when slots come does not work on them until they can,
// and reconciles everything then. The other one is not held up.
func TestR8ControllersOfAKindThatCannotBeListed(t *testing.T) {
	r := testRota(t)
	parents, others, children := schema.GroupKind{Group: "x", Kind: "Parent"}, schema.GroupKind{Group: "x", Kind: "Other"},
		schema.GroupKind{Kind: "ConfigMap"}
	var mu sync.Mutex
	enqueued := map[string]map[types.NamespacedName]bool{}
	controller := func(kind schema.GroupKind) *controllers.Controller {
		enqueued[kind.Kind] = map[types.NamespacedName]bool{}
		c := testController(t, r, kind.Kind, kind, func(keys []types.NamespacedName, _ work.Priority) {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range keys {
				enqueued[kind.Kind][key] = true
			}
		})
		return c
	}
	take := func(kind schema.GroupKind, key types.NamespacedName) bool {
		mu.Lock()
		defer mu.Unlock()
		had := enqueued[kind.Kind][key]
		delete(enqueued[kind.Kind], key)
		return had
	}
	parent, other := controller(parents), controller(others)
	if !r.share.Own(children, parents, true) {
		t.Fatal("not owned")
	}
	key := types.NamespacedName{Namespace: "a", Name: "b"}
	var first, mine slot.Set
	mine.Add(slotOf(r, key))
	first.Add((slotOf(r, key) + 1) % 256)
	r.share.Hold(first)
	server := func(objects ...*corev1.ConfigMap) *deliverytest.Memory {
		m := deliverytest.NewMemory()
		for _, obj := range objects {
			m.Put(obj)
		}
		return m
	}
	about := metav1.ObjectMeta{Namespace: "a", Name: "b"}
	child := metav1.ObjectMeta{Namespace: "a", Name: "child", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "x/v1", Kind: "Parent", Name: "b", UID: "u", Controller: ptr.To(true)},
	}}
	runInformer(t, r, parents, server(&corev1.ConfigMap{ObjectMeta: about}))
	runInformer(t, r, others, server(&corev1.ConfigMap{ObjectMeta: about}))
	_, faults := runInformer(t, r, children, server(&corev1.ConfigMap{ObjectMeta: child}))

	faults.Refuse(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("injected")))
	r.share.HoldAnew(mine)
	begun := time.Now()
	if err := r.share.Load(t.Context(), mine, table.CauseExpelled, nil, false); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 4*time.Second {
		t.Errorf("went without a kind after %v", took)
	}
	r.gate.SetDeadline(time.Hour)
	parked := r.gate.Open(mine, 7)
	opened := r.share.Open(mine)
	for _, c := range []*controllers.Controller{parent, other} {
		c.Enqueue(c.Opened(mine, opened[c.Kind], parked), work.PriorityOpened)
	}
	for _, c := range []*controllers.Controller{parent, other} {
		if !take(c.Kind, key) {
			t.Fatalf("%s: its object was not enqueued", c.Name)
		}
		c.Add(key)
		c.Take(key)
		_, ok := c.Admit(t.Context(), key)
		c.Done(key)
		if ok != (c == other) {
			t.Errorf("%s: admitted: %t", c.Name, ok)
		}
	}
	if r.Owns(parents, key) || !r.Owns(others, key) {
		t.Error("this member is said to own what it cannot work on, or not to own what it can")
	}
	if v, _ := metricOf(t, r, "rota_delivery_slots_lacking", "kind", "ConfigMap"); v != 1 {
		t.Errorf("slots without ConfigMaps by the metric: %v, want 1", v)
	}
	named := false
	for _, f := range r.Status().Refused {
		named = named || f.Kind == children && f.Request == delivery.RequestList && f.Without.Len() == 1
	}
	if !named {
		t.Errorf("the status does not name the kind and the slot: %v", r.Status().Refused)
	}

	faults.Refuse(nil)
	until(t, "the parent is enqueued again", func() bool { return take(parents, key) })
	parent.Add(key)
	parent.Take(key)
	if _, ok := parent.Admit(t.Context(), key); !ok {
		t.Error("not admitted although all children are there")
	}
	parent.Done(key)
	if v, _ := metricOf(t, r, "rota_delivery_slots_lacking", "kind", "ConfigMap"); v != 0 {
		t.Errorf("slots without ConfigMaps by the metric: %v, want 0", v)
	}
}
