package ctrlrt

import (
	"context"
	"fmt"
	"reflect"
	"slices"
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

// indexes records the calls of IndexField, since the manager's other caches need the same indexes.
type indexes struct {
	client.FieldIndexer
	// later returns true while informers must not be made, because a controller that shards their kind may still be built
	// (rota.Rota.JoinAfter). It may be nil.
	later func() bool

	mu  sync.Mutex
	all []index
	// pending are the indexes in all that the informers do not have yet.
	pending []index
}

// IndexField implements client.FieldIndexer.
func (i *indexes) IndexField(ctx context.Context, obj client.Object, field string, extract client.IndexerFunc) error {
	if i.later != nil && i.later() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.pending = append(i.pending, index{obj, field, extract})
		i.all = append(i.all, index{obj, field, extract})
		return nil
	}
	if err := i.FieldIndexer.IndexField(ctx, obj, field, extract); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, index{obj, field, extract})
	return nil
}

// make adds the pending indexes to the informers.
func (i *indexes) make(ctx context.Context) error {
	i.mu.Lock()
	pending := i.pending
	i.pending = nil
	i.mu.Unlock()
	for _, index := range pending {
		if err := i.FieldIndexer.IndexField(ctx, index.obj, index.field, index.extract); err != nil {
			return fmt.Errorf("index %s of %T: %w", index.field, index.obj, err)
		}
	}
	return nil
}

// copy makes the indexes of a kind that another cache has and this one lacks.
func (i *indexes) copy(ctx context.Context, from *indexes, kind schema.GroupKind, scheme *runtime.Scheme) error {
	has := i.of(kind, scheme)
	for _, index := range from.of(kind, scheme) {
		if slices.ContainsFunc(has, index.same) {
			continue
		}
		if err := i.IndexField(ctx, index.obj, index.field, index.extract); err != nil {
			return fmt.Errorf("index %s of kind %s: %w", index.field, kind, err)
		}
	}
	return nil
}

// same reports whether two indexes have the same name and type.
func (i index) same(other index) bool {
	return i.field == other.field && reflect.TypeOf(i.obj) == reflect.TypeOf(other.obj)
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
