package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/test/deliverytest"
)

// metricOf returns the value of the metric's series with all of these labels, given as name, value, …; false where
// there is none.
func metricOf(t *testing.T, r *Engine, name string, labels ...string) (float64, bool) {
	t.Helper()
	registry := prometheus.NewRegistry()
	noError(t, registry.Register(r.Collector()))
	families, err := registry.Gather()
	noError(t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if has[labels[i]] != labels[i+1] {
					continue series
				}
			}
			return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
		}
	}
	return 0, false
}

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// runInformer runs an informer of a kind that is sharded, of an API server in memory, until the test ends.
func runInformer(t *testing.T, r *Engine, kind schema.GroupKind,
	m *deliverytest.Memory,
) (cache.SharedIndexInformer, *deliverytest.Faulty) {
	t.Helper()
	faults := deliverytest.NewFaulty(m.ListWatch("", ""), false)
	inf := r.share.NewInformer(kind, faults, &corev1.ConfigMap{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
		t.Fatal("no sync")
	}
	return inf, faults
}

func TestFailingRequestsShow(t *testing.T) {
	r := testRota(t)
	kind := schema.GroupKind{Kind: "ConfigMap"}
	noError(t, r.share.Shard(kind))
	_, faults := runInformer(t, r, kind, deliverytest.NewMemory())
	seconds := func() float64 {
		v, ok := metricOf(t, r, "rota_delivery_failing_seconds", "kind", "ConfigMap", "request", "watch")
		if !ok {
			t.Fatal("there is no series of watches of ConfigMaps")
		}
		return v
	}
	if v := seconds(); v != 0 {
		t.Errorf("watches have failed for %v s before any did", v)
	}
	faults.RefuseWatches(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("injected")))
	until(t, "the metric shows that watches fail", func() bool { return seconds() > 0 })
	until(t, "so does the status", func() bool {
		f := r.Status().Refused
		return len(f) == 1 && f[0].Request == delivery.RequestWatch && apierrors.IsForbidden(f[0].Err) && f[0].Kind == kind
	})
	faults.RefuseWatches(nil)
	until(t, "the metric shows that watches work", func() bool { return seconds() == 0 })
	if f := r.Status().Refused; len(f) > 0 {
		t.Errorf("failing: %v", f)
	}
}
