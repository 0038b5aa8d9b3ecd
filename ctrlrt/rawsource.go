package ctrlrt

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// rawSource is a raw source of a sharded controller. It notes in the controller's sources what keeps it from syncing.
type rawSource struct {
	source.Source
	name    string
	sources *sources
}

var _ source.SyncingSource = (*rawSource)(nil)

func newRawSource(src source.Source, s *sources) *rawSource {
	raw := &rawSource{name: fmt.Sprintf("%T", src), sources: s}
	if named, ok := src.(fmt.Stringer); ok {
		raw.name = named.String()
	}
	raw.Source = withCache(src, func(c cache.Cache) cache.Cache { return notingCache{c, raw} })
	return raw
}

// String names the source in logs.
func (s *rawSource) String() string { return s.name }

func (s *rawSource) wanted() wanted { return wanted{raw: s} }

// Start implements source.Source.
func (s *rawSource) Start(ctx context.Context, q plainQueue) error {
	s.sources.begin(s.wanted())
	err := s.Source.Start(ctx, q)
	if _, syncs := s.Source.(source.SyncingSource); err != nil || !syncs {
		s.sources.end(s.wanted(), err)
	}
	return err
}

// WaitForSync implements source.SyncingSource.
func (s *rawSource) WaitForSync(ctx context.Context) error {
	syncs, ok := s.Source.(source.SyncingSource)
	if !ok {
		return nil
	}
	err := syncs.WaitForSync(ctx)
	s.sources.end(s.wanted(), err)
	return err
}

// notingCache notes why a raw source gets no informer. The source tries again, and tells nobody but the log.
type notingCache struct {
	cache.Cache
	raw *rawSource
}

// GetInformer implements cache.Informers.
func (c notingCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer, err := c.Cache.GetInformer(ctx, obj, opts...)
	c.raw.sources.note(c.raw.wanted(), err)
	return informer, err
}

// GetInformerForKind implements cache.Informers.
func (c notingCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind,
	opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	informer, err := c.Cache.GetInformerForKind(ctx, gvk, opts...)
	c.raw.sources.note(c.raw.wanted(), err)
	return informer, err
}

// withCache returns a copy of a source.Kind with another cache. controller-runtime does not export the type of such a
// source, but its field Cache. Other sources are returned as they are.
func withCache(src source.Source, wrap func(cache.Cache) cache.Cache) source.Source {
	given := reflect.ValueOf(src)
	if given.Kind() != reflect.Pointer || given.IsNil() {
		return src
	}
	t := given.Elem().Type()
	if !strings.HasPrefix(t.PkgPath(), "sigs.k8s.io/controller-runtime/") || !strings.HasPrefix(t.Name(), "Kind[") {
		return src
	}
	own := reflect.New(t)
	own.Elem().Set(given.Elem())
	field := own.Elem().FieldByName("Cache")
	if !field.IsValid() || !field.CanSet() || field.Type() != reflect.TypeFor[cache.Cache]() || field.IsNil() {
		return src
	}
	field.Set(reflect.ValueOf(wrap(field.Interface().(cache.Cache))))
	return own.Interface().(source.Source)
}
