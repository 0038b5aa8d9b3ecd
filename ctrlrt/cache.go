package ctrlrt

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota"
)

// reader answers a Get of a sharded kind's object from the API server unless this member owns it: the cache
// would say NotFound. Whose an object of an owned kind is, only the object tells.
type reader struct {
	client.Reader
	live   client.Reader
	rota   *rota.Rota
	kinds  *kinds
	scheme *runtime.Scheme
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	// Ownership first: what lies in the cache may be about to leave it, and to be changed by its next owner.
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err == nil && rota.Deleted(ctx, gvk.GroupKind(), key) {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name) // as a cache says it
	}
	if err == nil && r.kinds.isSharded(gvk.GroupKind()) && !r.rota.Owns(gvk.GroupKind(), key) {
		return r.live.Get(ctx, key, obj, opts...)
	}
	getErr := r.Reader.Get(ctx, key, obj, opts...)
	if err == nil && r.kinds.isOwned(gvk.GroupKind()) && (apierrors.IsNotFound(getErr) || getErr == nil && !r.rota.OwnsObject(gvk.GroupKind(), obj)) {
		return r.live.Get(ctx, key, obj, opts...)
	}
	if apierrors.IsNotFound(getErr) && err == nil && r.kinds.isSharded(gvk.GroupKind()) && !r.rota.Owns(gvk.GroupKind(), key) {
		return r.live.Get(ctx, key, obj, opts...) // the slot was lost, and its objects dropped, meanwhile
	}
	return getErr
}

// wholeCache is the manager's cache as it is given to those who need all objects of a kind: it refuses the kinds of
// which it has a share only.
type wholeCache struct {
	cache.Cache
	reader client.Reader
	mgr    *Manager
}

// Get implements client.Reader.
func (c *wholeCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, obj, opts...)
}

// GetInformer implements cache.Informers.
func (c *wholeCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(obj, c.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	if _, err := c.mgr.kinds.use(gvk.GroupKind(), false); err != nil {
		return nil, err
	}
	return c.Cache.GetInformer(ctx, obj, opts...)
}

// GetInformerForKind implements cache.Informers.
func (c *wholeCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	if _, err := c.mgr.kinds.use(gvk.GroupKind(), false); err != nil {
		return nil, err
	}
	return c.Cache.GetInformerForKind(ctx, gvk, opts...)
}

// view is the manager as the builder of a sharded controller sees it: its cache hands out sharded kinds.
type view struct{ *Manager }

// GetCache returns the cache whose informers of sharded kinds hold a share.
func (v *view) GetCache() cache.Cache {
	return &shardCache{wholeCache: wholeCache{Cache: v.inner.GetCache(), reader: v.reader, mgr: v.Manager}}
}

// shardCache refuses nothing that is sharded, and notes what is used whole.
type shardCache struct{ wholeCache }

// GetInformer implements cache.Informers.
func (c *shardCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(obj, c.mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	if c.mgr.kinds.isSharded(gvk.GroupKind()) || c.mgr.kinds.isOwned(gvk.GroupKind()) {
		return c.Cache.GetInformer(ctx, obj, opts...)
	}
	return c.wholeCache.GetInformer(ctx, obj, opts...)
}
