package drainlabel

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Misplaced returns how many objects do not have the shard that they belong to in a ring, or are still to be let go by
// another.
func (s *Sharder) Misplaced(ctx context.Context, c client.Reader, ring Ring) (n int, err error) {
	for i, kind := range append([]schema.GroupVersionKind{s.Main}, s.Children...) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		cached := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
		if err := c.List(ctx, list, cached); err != nil {
			return 0, err
		}
		for j := range list.Items {
			obj := &list.Items[j]
			if key := s.key(obj, i > 0); key != "" && (ring.Of(key) != obj.Labels[ShardLabel(s.Ring)] ||
				obj.Labels[DrainLabel(s.Ring)] != "") {
				n++
			}
		}
	}
	return n, nil
}
