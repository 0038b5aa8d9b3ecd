package ctrlrt_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/test/controlplane"
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

// A series by object is in one member: while objects change and slots move, no OnLost comes beside a reconcile. When
// all is quiet no object has two series, and none outlives its object.
func TestSeriesFollowTheirObjects(t *testing.T) {
	t.Parallel()
	c, namespace := adminClient(t), controlplane.Namespace(t)
	var keys []types.NamespacedName
	for i := range 60 {
		cm := configMap(namespace, fmt.Sprintf("series-%d", i), "1")
		noError(t, c.Create(t.Context(), cm))
		keys = append(keys, client.ObjectKeyFromObject(cm))
	}
	vectors := map[string]*prometheus.GaugeVec{}
	start := func(pod string) *replica {
		values := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "value"}, []string{"namespace", "name"})
		vectors[pod] = values
		drop := ctrlrt.DropSeries("namespace", "name", values.MetricVec)
		j := newJournal() // of this member
		return startMember(t, namespace, pod, rota.Options{}, func(mgr *ctrlrt.Manager) error {
			return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
				OnLost(func(ctx context.Context, r reconcile.Request) {
					j.enter(pod, r.NamespacedName, 0, "")
					defer j.leave(r.NamespacedName)
					drop(ctx, r)
					if err := j.problem(); err != nil {
						t.Error(err)
					}
				}).
				Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					if !strings.HasPrefix(r.Name, "series-") {
						return reconcile.Result{}, nil
					}
					j.enter(pod, r.NamespacedName, 0, "")
					defer j.leave(r.NamespacedName)
					var cm corev1.ConfigMap
					if err := mgr.GetClient().Get(ctx, r.NamespacedName, &cm); err != nil {
						drop(ctx, r)
						return reconcile.Result{}, client.IgnoreNotFound(err)
					}
					time.Sleep(5 * time.Millisecond)
					value, _ := strconv.Atoi(strings.TrimPrefix(cm.Data["value"], "churn-"))
					values.WithLabelValues(r.Namespace, r.Name).Set(float64(value))
					if err := j.problem(); err != nil {
						t.Error(err)
					}
					return reconcile.Result{}, nil
				}))
		})
	}
	series := func() (n int) {
		for _, v := range vectors {
			n += seriesOf(v)
		}
		return n
	}
	want := func(n int) func() string {
		return func() string {
			if got := series(); got != n {
				return fmt.Sprintf("%d series, want %d", got, n)
			}
			return ""
		}
	}
	a, b := start("a"), start("b")
	eventually(t, 30*time.Second, settled(a, b))
	stop := churn(t, c, keys)
	d := start("d")
	eventually(t, 30*time.Second, settled(a, b, d))
	a.leave(t)
	delete(vectors, "a") // the process has ended
	eventually(t, 10*time.Second, settled(b, d))
	stop()
	eventually(t, 10*time.Second, want(len(keys)))
	for _, key := range keys {
		noError(t, c.Delete(t.Context(), configMap(key.Namespace, key.Name, "")))
	}
	eventually(t, 10*time.Second, want(0))
}
