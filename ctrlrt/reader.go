package ctrlrt

import (
	"context"
	"reflect"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota"
)

// reader answers a Get of a sharded kind's object from the API server unless this member owns it: the cache
// would say NotFound. Whose an object of an owned kind is, only the object tells.
//
// A kind that is sharded in both ways is in two caches, of which neither is as new as the other. A reconciler has to read
// from the one whose events it gets: if it looked for a child that was deleted in the other one, and found it, nothing would
// ever tell it again.
type reader struct {
	client.Reader
	// children holds the objects of kinds that are sharded in both ways by their owners; nil: there are no such kinds.
	children atomic.Pointer[cache.Cache]
	live     client.Reader
	rota     *rota.Rota
	kinds    *kinds
	scheme   *runtime.Scheme
}

type ownedKey struct{}

// withOwned has reads be those of a controller that owns objects of the kinds.
func withOwned(ctx context.Context, owned map[schema.GroupKind]bool) context.Context {
	if len(owned) == 0 {
		return ctx
	}
	return context.WithValue(ctx, ownedKey{}, owned)
}

// caches returns, of a kind that is sharded in both ways, the cache to read from first and the other one; byOwner says that
// the first is that of children. ok is false for other kinds.
func (r *reader) caches(ctx context.Context, kind schema.GroupKind) (first, second client.Reader, byOwner, ok bool) {
	children := r.children.Load()
	if children == nil || !r.kinds.isBoth(kind) {
		return nil, nil, false, false
	}
	owned, _ := ctx.Value(ownedKey{}).(map[schema.GroupKind]bool)
	if owned[kind] {
		return *children, r.Reader, true, true
	}
	return r.Reader, *children, false, true
}

// mine says whether an object of a kind is in this member's share, by its own key or by its owner's.
func (r *reader) mine(kind schema.GroupKind, obj metav1.Object, byOwner bool) bool {
	slotOf := r.rota.Share().SlotOf
	if byOwner {
		slotOf = r.rota.Share().OwnerSlotOf
	}
	n, ok := slotOf(kind, obj)
	return ok && r.rota.OwnsSlot(n)
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return r.Reader.Get(ctx, key, obj, opts...)
	}
	kind := gvk.GroupKind()
	if rota.Deleted(ctx, kind, key) {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name) // as a cache says it
	}
	from, _, byOwner, both := r.caches(ctx, kind)
	switch {
	case both && byOwner, !both && r.kinds.isOwned(kind):
		if !both {
			from = r.Reader
		}
		blank := obj.DeepCopyObject()
		if err := from.Get(ctx, key, obj, opts...); err != nil && !apierrors.IsNotFound(err) || err == nil && r.mine(kind, obj, true) {
			return err
		}
		// Decoding adds to what is there, which may be the cache's own.
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(blank).Elem())
		return r.live.Get(ctx, key, obj, opts...)
	case !r.kinds.isSharded(kind):
		return r.Reader.Get(ctx, key, obj, opts...)
	}
	// Ownership first: what lies in the cache may be about to leave it, and to be changed by its next owner.
	if !r.rota.Owns(kind, key) {
		return r.live.Get(ctx, key, obj, opts...)
	}
	err = r.Reader.Get(ctx, key, obj, opts...)
	if apierrors.IsNotFound(err) && !r.rota.Owns(kind, key) {
		return r.live.Get(ctx, key, obj, opts...) // the slot was lost, and its objects dropped, meanwhile
	}
	return err
}

// List implements client.Reader: with the objects of this member's share. Of a kind that is sharded in both ways it returns
// those that are in it by either, each once.
func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, r.scheme)
	if err != nil {
		return r.Reader.List(ctx, list, opts...)
	}
	kind := schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}
	first, second, byOwner, both := r.caches(ctx, kind)
	if !both {
		return r.Reader.List(ctx, list, opts...)
	}
	more := list.DeepCopyObject().(client.ObjectList)
	if err := first.List(ctx, list, opts...); err != nil {
		return err
	}
	if err := second.List(ctx, more, opts...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	has := map[types.NamespacedName]bool{}
	for _, item := range items {
		if about, err := meta.Accessor(item); err == nil {
			has[types.NamespacedName{Namespace: about.GetNamespace(), Name: about.GetName()}] = true
		}
	}
	err = meta.EachListItem(more, func(item runtime.Object) error {
		about, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		// Of what is open to this member by the first, that knows better: it is gone. It may have more, of slots on their way.
		if !r.mine(kind, about, byOwner) && !has[types.NamespacedName{Namespace: about.GetNamespace(), Name: about.GetName()}] {
			items = append(items, item)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return meta.SetList(list, items)
}
