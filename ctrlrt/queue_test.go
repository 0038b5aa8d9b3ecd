package ctrlrt

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/fair"
	"github.com/rota-dev/rota/internal/adapter"
	"github.com/rota-dev/rota/internal/work"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/require"
)

func TestForeignKeysStayOutOfTheQueue(t *testing.T) {
	r, _ := unserved(t)
	c, err := r.Adapt(adapter.Grant()).NewController("test", schema.GroupKind{Kind: "ConfigMap"}, func([]types.NamespacedName, work.Priority) {})
	require.NoError(t, err)
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

// Events of a channel about objects of other members are counted, and the first one is logged. Those about this
// member's objects come to the queue.
func TestDroppedEventsAreCounted(t *testing.T) {
	for _, priorities := range []bool{true, false} {
		logged := 0
		r, err := rota.New(nil, rota.Options{Solo: true, Logger: funcr.New(func(_, line string) {
			if strings.Contains(line, "rota_events_dropped_total") {
				logged++
			}
		}, funcr.Options{})})
		require.NoError(t, err)
		require.NoError(t, shareOf(r).Shard(configMaps.GroupKind()))
		mine := shareOf(r).Slot("a", "mine", "")
		open := slot.SetOf(slot.Range{First: mine, Last: mine})
		shareOf(r).Hold(open)
		parts := r.Adapt(adapter.Grant())
		parts.Gate.SetDeadline(100000 * time.Hour)
		parts.Gate.Open(open, 1)
		c, err := parts.NewController("test", configMaps.GroupKind(), func([]types.NamespacedName, work.Priority) {})
		require.NoError(t, err)
		q := wrapQueue(controller.Options{UsePriorityQueue: ptr.To(priorities)}, c,
			func(key types.NamespacedName) types.NamespacedName { return key }, func(plainQueue) {})("test", queueLimiter())
		events := make(chan event.GenericEvent)
		require.NoError(t, forwarding(source.Channel(events, &handler.EnqueueRequestForObject{})).Start(t.Context(), q))
		send := func(name string) {
			events <- event.GenericEvent{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}}
		}
		for _, name := range []string{"theirs", "others", "mine"} {
			if name != "mine" && shareOf(r).Slot("a", name, "") == mine {
				t.Fatalf("%s is in the slot of mine: choose another name", name)
			}
			send(name)
		}
		if got, _ := q.Get(); got.Name != "mine" {
			t.Errorf("the queue has %v, want mine", got)
		}
		registry := prometheus.NewRegistry()
		require.NoError(t, registry.Register(r.Collector()))
		families, err := registry.Gather()
		require.NoError(t, err)
		counted := 0.0
		for _, f := range families {
			if f.GetName() == "rota_events_dropped_total" {
				counted = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		if counted != 2 || logged != 1 {
			t.Errorf("counted %v and logged %d times, want 2, and once", counted, logged)
		}
		q.ShutDown()
	}
}

// recorder is a priority queue that notes the delays of what is added.
type recorder struct {
	prioritized
	after []time.Duration
}

func (r *recorder) AddWithOpts(o priorityqueue.AddOpts, items ...request) {
	r.after = append(r.after, slices.Repeat([]time.Duration{o.After}, len(items))...)
}

// What a reconcile asks for with RequeueAfter after its slot came is spread. Short delays are not.
func TestPriorityQueuesSpreadTimers(t *testing.T) {
	r, err := rota.New(nil, rota.Options{Solo: true})
	require.NoError(t, err)
	require.NoError(t, shareOf(r).Shard(configMaps.GroupKind()))
	all := slot.Count(256).All()
	shareOf(r).Hold(all)
	parts := r.Adapt(adapter.Grant())
	parts.Gate.SetDeadline(100000 * time.Hour)
	parts.Gate.Open(all, 1)
	c, err := parts.NewController("test", configMaps.GroupKind(), func([]types.NamespacedName, work.Priority) {})
	require.NoError(t, err)
	c.Work.Opened(all, nil, nil)
	inner := &recorder{}
	q := wrapQueue(controller.Options{
		NewQueue: func(string, workqueue.TypedRateLimiter[request]) plainQueue { return inner },
	}, c, func(key types.NamespacedName) types.NamespacedName { return key }, func(plainQueue) {})("test", nil).(*priorityQueue)
	key := types.NamespacedName{Namespace: "a", Name: "b"}
	if _, ok := c.Admit(t.Context(), key); !ok {
		t.Fatal("not admitted")
	}
	for _, delay := range []time.Duration{time.Minute, time.Second} {
		q.AddWithOpts(priorityqueue.AddOpts{After: delay}, request{NamespacedName: key})
	}
	c.Done(key)
	q.AddWithOpts(priorityqueue.AddOpts{After: time.Minute}, request{NamespacedName: key}) // no reconcile asks for it
	if got := inner.after; len(got) != 3 || got[0] <= 0 || got[0] >= time.Minute || got[1] != time.Second || got[2] != time.Minute {
		t.Errorf("delays %v, want a part of 1m, 1s and 1m", got)
	}
}
