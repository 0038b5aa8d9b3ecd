package ctrlrt_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
)

// seriesOf returns how many series a vector has, a thousand at most.
func seriesOf(c prometheus.Collector) int {
	all := make(chan prometheus.Metric, 1000)
	c.Collect(all)
	return len(all)
}

func TestDropSeries(t *testing.T) {
	labels := []string{"namespace", "name", "type"}
	exact := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "exact"}, labels[:2])
	more := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "more"}, labels)
	for _, name := range []string{"a", "b"} {
		exact.WithLabelValues("ns", name).Set(1)
		more.WithLabelValues("ns", name, "x").Inc()
		more.WithLabelValues("ns", name, "y").Inc()
	}
	drop := ctrlrt.DropSeries("namespace", "name", exact.MetricVec, more.MetricVec)
	drop(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "a"}})
	drop(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "other", Name: "b"}})
	if n, m := seriesOf(exact), seriesOf(more); n != 1 || m != 2 {
		t.Errorf("%d and %d series are left, want those of b: 1 and 2", n, m)
	}
	ctrlrt.DropSeries("", "name", more.MetricVec)(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "b"}})
	if n := seriesOf(more); n != 0 {
		t.Errorf("%d series are left of a vector without a namespace, want none", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("a vector without the label is accepted")
		}
	}()
	ctrlrt.DropSeries("exported_namespace", "name", exact.MetricVec)
}
