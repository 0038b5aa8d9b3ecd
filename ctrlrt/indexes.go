package ctrlrt

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// index is one call of IndexField.
type index struct {
	obj     client.Object
	field   string
	extract client.IndexerFunc
}

// indexes records the calls of IndexField: the manager's other caches need the same indexes.
type indexes struct {
	client.FieldIndexer

	mu  sync.Mutex
	all []index
}

// IndexField implements client.FieldIndexer.
func (i *indexes) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if err := i.FieldIndexer.IndexField(ctx, obj, field, extract); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, index{obj, field, extract})
	return nil
}

func (i *indexes) of(kind schema.GroupKind, scheme *runtime.Scheme) []index {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []index
	for _, index := range i.all {
		if gvk, err := apiutil.GVKForObject(index.obj, scheme); err == nil && gvk.GroupKind() == kind {
			out = append(out, index)
		}
	}
	return out
}
