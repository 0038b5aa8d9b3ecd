package rotatest

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/rota-dev/rota"
)

// strangers names objects of a run that failed which neither the test nor a member wrote last, such as a manager that
// the test suite has started. A report says it. On a cluster with other controllers that is as it should be.
func (k *kit) strangers(r *run) string {
	labels := k.o.Rota.Label || k.o.Rota.Delivery != 0 && k.o.Rota.Delivery != rota.DeliveryFilter
	if labels || len(r.strange) == 0 {
		return ""
	}
	return fmt.Sprintf("\nSomebody else wrote these objects, too. If that is a manager of the operator which runs beside "+
		"this test, end it first:\n%s", indent(strings.Join(r.strange[:min(5, len(r.strange))], "\n")))
}

// noteStrangers notes which objects somebody else wrote last.
func (r *run) noteStrangers(all []*unstructured.Unstructured) {
	r.strange = nil
	for _, obj := range all {
		if r.record.wrote(obj) {
			continue
		}
		text := nameOf(obj)
		if fields := obj.GetManagedFields(); len(fields) > 0 {
			latest := slices.MaxFunc(fields, func(a, b metav1.ManagedFieldsEntry) int {
				return ptr.Deref(a.Time, metav1.Time{}).Compare(ptr.Deref(b.Time, metav1.Time{}).Time)
			})
			text += " by " + latest.Manager
		}
		r.strange = append(r.strange, text)
	}
}
