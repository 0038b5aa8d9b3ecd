package ctrlrt

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// rawSource is a raw source of a sharded controller. It records in the controller's sources why it has not synced.
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
	raw.Source = controllerruntime.WithCache(src, func(c cache.Cache) cache.Cache { return notingCache{c, raw} })
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

// notingCache records why a raw source gets no informer. The source itself only logs the error and tries again.
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
