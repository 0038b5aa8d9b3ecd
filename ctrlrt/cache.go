package ctrlrt

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// wholeCache is the manager's cache for callers that need all objects of a kind. It refuses informers of kinds of which
// the cache holds only a share.
type wholeCache struct {
	cache.Cache
	reader client.Reader
	mgr    *Manager
}

// Get implements client.Reader.
func (c *wholeCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *wholeCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}

// IndexField implements client.FieldIndexer.
func (c *wholeCache) IndexField(ctx context.Context, obj client.Object, field string,
	extract client.IndexerFunc,
) error {
	return c.mgr.indexes.IndexField(ctx, obj, field, extract)
}

// GetInformer implements cache.Informers.
func (c *wholeCache) GetInformer(ctx context.Context, obj client.Object,
	opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(obj, c.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	from, err := c.from(ctx, gvk.GroupKind())
	if err != nil {
		return nil, err
	}
	return recordingCache{from}.GetInformer(ctx, obj, opts...)
}

// GetInformerForKind implements cache.Informers.
func (c *wholeCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind,
	opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	from, err := c.from(ctx, gvk.GroupKind())
	if err != nil {
		return nil, err
	}
	return from.GetInformerForKind(ctx, gvk, opts...)
}

// RemoveInformer implements cache.Informers. It removes an informer that GetInformer returned, but never an informer of
// a share, which the kind's sharded controllers use.
func (c *wholeCache) RemoveInformer(ctx context.Context, obj client.Object) error {
	gvk, err := apiutil.GVKForObject(obj, c.mgr.GetScheme())
	if err != nil {
		return err
	}
	kind := gvk.GroupKind()
	switch {
	case c.mgr.kinds.inWhole(kind):
		whole, err := c.mgr.wholeCache()
		if err != nil {
			return err
		}
		return whole.RemoveInformer(ctx, obj)
	case c.mgr.kinds.isSharded(kind), c.mgr.kinds.isOwned(kind):
		return nil
	default:
		return c.Cache.RemoveInformer(ctx, obj)
	}
}

// from returns the cache that has all objects of a kind. A source that a controller starts while the manager runs gets
// the cache of Manager.Whole, like Watches, since an error would only make the source try again. Sources that need all
// objects and were declared before the manager's start have been refused by then; see declared.
func (c *wholeCache) from(ctx context.Context, kind schema.GroupKind) (cache.Cache, error) {
	fromWhole, err := c.mgr.kinds.use(kind)
	switch {
	case err != nil && ofController(ctx):
		return c.mgr.wholeCacheLate(ctx, kind)
	case err != nil || !fromWhole:
		return c.Cache, err
	}
	return c.mgr.wholeCache()
}

// wholeCacheLate makes all readers outside of the kind's controllers read it from the cache of Whole from now on. If
// the share lagged behind the watch, the reconciler that an event wakes would not see the object in it.
func (m *Manager) wholeCacheLate(ctx context.Context, kind schema.GroupKind) (cache.Cache, error) {
	if m.kinds.useLate(kind) {
		m.GetLogger().Info("A controller that runs watches a kind of which this member caches a share. From now on this "+
			"member caches all its objects besides. To have that from the start, call KeepWhole of the ctrlrt.Manager with "+
			"the kind", "kind", kind.String())
	}
	if err := m.addCaches(ctx); err != nil {
		return nil, err
	}
	return m.wholeCache()
}

// view is the manager that the builder of a sharded controller uses. Its cache gives out informers of sharded kinds.
type view struct {
	*Manager
	asker   *asker
	sources *sources
	given   int // number of caches given out
}

// Add adds the controller, whose contexts will carry the asker.
func (v *view) Add(r manager.Runnable) error { return v.Manager.Add(asking{r, v.rota, v.asker}) }

// GetCache returns the cache whose informers of sharded kinds hold a share.
func (v *view) GetCache() cache.Cache {
	c := &shardCache{wholeCache: wholeCache{Cache: v.inner.GetCache(), reader: v.reader, mgr: v.Manager}, asker: v.asker,
		sources: v.sources}
	if v.given < len(v.asker.twin.caches) {
		c.twin = &v.asker.twin.caches[v.given].informer
	}
	v.given++
	return c
}

// shardCache is a wholeCache that also gives out informers of sharded kinds. Each source of a controller has one.
type shardCache struct {
	wholeCache
	asker   *asker
	sources *sources
	twin    *twinInformer // of the same source of the twin
}

// GetInformer implements cache.Informers. The controller's source waits in it until the informer has synced.
func (c *shardCache) GetInformer(ctx context.Context, obj client.Object,
	opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(obj, c.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	c.sources.begin(wanted{gvk: gvk})
	informer, err := c.getInformer(ctx, gvk, obj, opts...)
	c.sources.end(wanted{gvk: gvk}, err)
	if err != nil {
		return nil, err
	}
	return c.listened(gvk.GroupKind(), informer), nil
}

// listened returns an informer that passes the handlers added to it to the controller's chooser.
func (c *shardCache) listened(kind schema.GroupKind, informer cache.Informer) cache.Informer {
	chooser, listeners := c.asker.chooser, &c.asker.chooser.others
	if kind == chooser.kind {
		listeners = &chooser.self
	}
	var twin toolscache.ResourceEventHandler
	if c.twin != nil {
		twin = c.twin.added()
	}
	return chooser.listen(informer, twin, &c.asker.twin.answers, listeners)
}

func (c *shardCache) getInformer(ctx context.Context, gvk schema.GroupVersionKind, obj client.Object,
	opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	kind := gvk.GroupKind()
	if children := c.mgr.reader.children.Load(); children != nil && c.asker.owned[kind] && c.mgr.kinds.isBoth(kind) {
		return (*children).GetInformer(ctx, obj, opts...)
	}
	if c.mgr.kinds.inWhole(kind) && !c.mgr.reader.shares(c.asker, kind) {
		whole, err := c.mgr.wholeCache()
		if err != nil {
			return nil, err
		}
		return whole.GetInformer(ctx, obj, opts...)
	}
	if c.mgr.kinds.isSharded(kind) || c.mgr.kinds.isOwned(kind) {
		informer, err := c.Cache.GetInformer(ctx, obj, opts...)
		if err == nil && ctx.Err() == nil {
			err = c.mgr.holdsShare(kind, c.asker.controller)
		}
		return informer, err
	}
	return c.wholeCache.GetInformer(ctx, obj, opts...)
}

// holdsShare makes the manager end if no informer of a sharded kind in its cache holds a share, as with a NewCache that
// ignores NewInformer. Nothing would be reconciled then.
func (m *Manager) holdsShare(kind schema.GroupKind, controller string) error {
	if made, _ := shareOf(m.rota).Informers(kind); made {
		return nil
	}
	return m.kinds.refuse(fmt.Errorf("controller %q: the manager's cache has given out an informer of %s that does not "+
		"hold this member's share, so that nothing would be reconciled because of it: the function NewCache in the "+
		"manager's options must make the cache of the options that it is given, NewInformer included, as "+
		"cache.New(config, options) does", controller,
		kind))
}
