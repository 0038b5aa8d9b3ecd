package ctrlrt

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// DropSeries returns a function that deletes an object's series from metric vectors. namespace and name are the names
// of the labels with the object's namespace and name. namespace is empty for cluster-scoped kinds. Use the function in
// Builder.OnLost and in the reconcile of a deletion.
//
// It panics if a vector lacks one of these labels, since no series would be deleted.
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
			if !v.Delete(labels(r)) { // faster, but only works if there are no other labels
				v.DeletePartialMatch(labels(r))
			}
		}
	}
}
