package coverage

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Written returns when a field was last written, on the clock of the API server that handled the write, in whole
// seconds. It returns zero if that is unknown. field is as in managedFields, such as "f:renewTime".
func Written(o metav1.Object, field string) (at time.Time) {
	for _, f := range o.GetManagedFields() {
		has := f.FieldsV1 != nil && strings.Contains(f.FieldsV1.String(), `"`+field+`"`)
		if has && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}
