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

// strangers lists, for the report of a failed run, objects that neither the test nor a member wrote last. The writer
// may be a manager that the test suite has started. On a cluster with other controllers this is normal.
func (k *kit) strangers(r *run) string {
	labels := k.o.Rota.Label || k.o.Rota.Delivery != 0 && k.o.Rota.Delivery != rota.DeliveryFilter
	if labels || len(r.strange) == 0 {
		return ""
	}
	return fmt.Sprintf("\nAnother client also wrote these objects. If it is a manager of the operator that runs beside "+
		"this test, end it first:\n%s", indent(strings.Join(r.strange[:min(5, len(r.strange))], "\n")))
}

// noteStrangers records the objects that another client wrote last.
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
