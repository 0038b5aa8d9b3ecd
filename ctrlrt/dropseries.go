package ctrlrt

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// DropSeries returns a function for Builder.OnLost, and for the reconcile of a deletion, that deletes the object's
// series from vectors whose labels of these names have its namespace and name. namespace is empty for cluster-scoped
// kinds.
//
// It panics if a vector has no label of these names, since it would then delete nothing.
func DropSeries(namespace, name string, vectors ...*prometheus.MetricVec) func(context.Context, reconcile.Request) {
	labels := func(r reconcile.Request) prometheus.Labels {
		if namespace == "" {
			return prometheus.Labels{name: r.Name}
		}
		return prometheus.Labels{namespace: r.Namespace, name: r.Name}
	}
	for _, v := range vectors {
		if _, err := v.CurryWith(labels(reconcile.Request{})); err != nil {
			panic(fmt.Sprintf("ctrlrt.DropSeries: a vector lacks a label: %v", err))
		}
	}
	return func(_ context.Context, r reconcile.Request) {
		for _, v := range vectors {
			if !v.Delete(labels(r)) { // which takes less time, where the series has no other labels
				v.DeletePartialMatch(labels(r))
			}
		}
	}
}
