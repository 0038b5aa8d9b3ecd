package delivery

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// Stranded returns the names of children in open slots that were deleted before a time and wait for their finalizers,
// although their owners do not exist, by kind. It goes through all children.
func (s *Share) Stranded(before time.Time) map[schema.GroupKind][]string {
	out, deleted := map[schema.GroupKind][]string{}, metav1.NewTime(before)
	for _, inf := range s.active() {
		if !inf.role.Owned() {
			continue
		}
		for _, obj := range inf.objects(*s.open.Load()) {
			about, err := meta.Accessor(obj)
			if err != nil || len(about.GetFinalizers()) == 0 || !about.GetDeletionTimestamp().Before(&deleted) {
				continue
			}
			if _, owner, ok := inf.slotOf(obj); ok && !s.Exists(owner.Kind, owner.Name) {
				out[inf.kind] = append(out[inf.kind], cache.MetaObjectToName(about).String())
			}
		}
	}
	return out
}
