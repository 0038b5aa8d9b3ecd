package ctrlrt

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
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
	"github.com/rota-dev/rota/internal/adapter"
)

// reader answers a Get of a sharded kind's object from another place unless this member owns it: the cache would say
// NotFound. Whose an object of an owned kind is, only the object tells. That place is the API server, or the cache of
// Manager.Whole where it has the kind. A List by a sharded controller that is for the kind, or owns objects of it, has
// the objects of this member's share; one by anybody else has all.
//
// Slots may be open although a kind cannot be listed (delivery.Share.Incomplete). The cache says nothing about it then,
// and nothing is read from it.
//
// A kind may be in several caches, of which none is as new as another. A reconciler has to read from the one whose
// events it gets: if it looked for a child that was deleted in another one, and found it, nothing would ever tell it
// again.
type reader struct {
	client.Reader
	// children holds the objects of kinds that are sharded in both ways by their owners; nil: there are no such kinds.
	children atomic.Pointer[cache.Cache]
	// whole is the cache of Manager.Whole.
	whole func() (client.Reader, error)
	// direct reads from the API server, live does within the bounds of the cache.
	direct client.Reader
	live   *uncached
	rota   *rota.Rota
	kinds  *kinds
	scheme *runtime.Scheme
	log    logr.Logger
	lists  places
}

// caches returns, of a kind that is sharded in both ways, the cache to read from first and the other one; byOwner says
// that the first is that of children. ok is false for other kinds.
func (r *reader) caches(ctx context.Context, kind schema.GroupKind) (first, second client.Reader, byOwner, ok bool) {
	children := r.children.Load()
	if children == nil || !r.kinds.isBoth(kind) {
		return nil, nil, false, false
	}
	if askerFrom(ctx).owns(kind) {
		return *children, r.Reader, true, true
	}
	return r.Reader, *children, false, true
}

// mine says whether an object of a kind is in this member's share, by its own key or by its owner's.
func (r *reader) mine(kind schema.GroupKind, obj metav1.Object, byOwner bool) bool {
	slotOf := shareOf(r.rota).SlotOf
	if byOwner {
		slotOf = shareOf(r.rota).OwnerSlotOf
	}
	n, ok := slotOf(kind, obj)
	return ok && adapter.Of(r.rota).Gate.Owns(n)
}

// elsewhere returns where the objects of a sharded kind are that are not this member's. only says that who asks has to
// read all objects there: it gets its events from there, or none.
func (r *reader) elsewhere(ctx context.Context, kind schema.GroupKind) (from client.Reader, only bool, err error) {
	if !r.kinds.inWhole(kind) {
		return r.live, false, nil
	}
	whole, err := r.whole()
	return whole, !r.shares(askerFrom(ctx), kind), err
}

// shares says that who asks is a sharded controller whose share of the kind is what it works on.
func (r *reader) shares(a *asker, kind schema.GroupKind) bool {
	return a != nil && (r.kinds.isFor(kind, a.controller) || a.owns(kind) && r.kinds.isOwned(kind))
}

// incomplete says that the cache lacks objects of this member's share.
func (r *reader) incomplete(kind schema.GroupKind) bool { return shareOf(r.rota).Incomplete(kind) }

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return r.Reader.Get(ctx, key, obj, opts...)
	}
	kind := gvk.GroupKind()
	if adapter.Deleted(ctx, kind, key) {
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name) // as a cache says it
	}
	others, only, err := r.elsewhere(ctx, kind)
	if err != nil || only {
		if err == nil {
			err = others.Get(ctx, key, obj, opts...)
		}
		return err
	}
	from, _, byOwner, both := r.caches(ctx, kind)
	switch {
	case both && byOwner, !both && r.kinds.isOwned(kind):
		if !both {
			from = r.Reader
		}
		blank := obj.DeepCopyObject()
		if err := from.Get(ctx, key, obj, opts...); err != nil && !apierrors.IsNotFound(err) || err == nil && !r.incomplete(kind) && r.mine(kind, obj, true) {
			return err
		}
		// Decoding adds to what is there, which may be the cache's own.
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(blank).Elem())
		return others.Get(ctx, key, obj, opts...)
	case !r.kinds.isSharded(kind):
		return r.Reader.Get(ctx, key, obj, opts...)
	}
	// Ownership first: what lies in the cache may be about to leave it, and to be changed by its next owner.
	if !r.rota.Owns(kind, key) {
		return others.Get(ctx, key, obj, opts...)
	}
	err = r.Reader.Get(ctx, key, obj, opts...)
	if apierrors.IsNotFound(err) && !r.rota.Owns(kind, key) {
		return others.Get(ctx, key, obj, opts...) // the slot was lost, and its objects dropped, meanwhile
	}
	return err
}

// List implements client.Reader. What it returns of a sharded kind depends on who asks: see reader.
func (r *reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, r.scheme)
	if err != nil {
		return r.Reader.List(ctx, list, opts...)
	}
	kind := schema.GroupKind{Group: gvk.Group, Kind: strings.TrimSuffix(gvk.Kind, "List")}
	if !r.kinds.isSharded(kind) && !r.kinds.isOwned(kind) {
		return r.Reader.List(ctx, list, opts...)
	}
	if has(opts, Share) {
		return r.listShare(ctx, kind, list, opts...)
	}
	others, only, err := r.elsewhere(ctx, kind)
	switch {
	case err != nil:
		return err
	case only:
		return others.List(ctx, list, opts...)
	case !r.shares(askerFrom(ctx), kind):
		return r.listLive(ctx, kind, list, opts...)
	case r.kinds.isKept(kind) && r.kinds.inWhole(kind):
		if r.incomplete(kind) {
			return others.List(ctx, list, opts...)
		}
		return r.join(ctx, kind, list, r.Reader, others, false, opts...)
	default:
		return r.listShare(ctx, kind, list, opts...)
	}
}

// listLive answers a List by somebody whose share of the kind is not what he works on: from outside of sharded
// controllers, or by a sharded controller that neither is for the kind nor owns objects of it.
func (r *reader) listLive(ctx context.Context, kind schema.GroupKind, list client.ObjectList, opts ...client.ListOption) error {
	from := "from outside of sharded controllers"
	if a := askerFrom(ctx); a != nil {
		from = fmt.Sprintf("by controller %q, which neither is For it nor Owns it,", a.controller)
	}
	place, first := r.lists.first(kind)
	if first {
		r.log.Info("A List of a sharded kind "+from+" is answered by the API server, since this manager's cache holds a share "+
			"of its objects. For a cache of all objects use KeepWhole or Whole of the ctrlrt.Manager; for this member's share, the option ctrlrt.Share",
			"kind", kind.String(), "place", place)
	}
	return unindexed(r.live.List(ctx, list, opts...), kind, from+" at "+place+": this manager's cache holds a share of its objects", opts...)
}

// unindexed explains that the API server does not know a field by which it was to select, where that is the error.
func unindexed(err error, kind schema.GroupKind, why string, opts ...client.ListOption) error {
	o := client.ListOptions{}
	if o.ApplyOptions(opts); !apierrors.IsBadRequest(err) || o.FieldSelector == nil || o.FieldSelector.Empty() {
		return err
	}
	return fmt.Errorf("List of %s by field %s %s, and the API server does not know that field; for a cache of all objects with the same index call "+
		"KeepWhole of the ctrlrt.Manager with that kind, or read from the manager that its Whole returns; for this member's share use the option "+
		"ctrlrt.Share: %w", kind, o.FieldSelector, why, err)
}

// listShare lists the objects of this member's share. Of a kind that is sharded in both ways it returns those that are
// in it by either, each once.
func (r *reader) listShare(ctx context.Context, kind schema.GroupKind, list client.ObjectList, opts ...client.ListOption) error {
	if r.incomplete(kind) {
		return r.listMine(ctx, kind, list, opts...)
	}
	first, second, byOwner, both := r.caches(ctx, kind)
	if !both {
		return r.Reader.List(ctx, list, opts...)
	}
	return r.join(ctx, kind, list, first, second, byOwner, opts...)
}

// listMine lists this member's share from the API server.
func (r *reader) listMine(ctx context.Context, kind schema.GroupKind, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.live.List(ctx, list, append(slices.Clip(opts), client.Limit(0))...); err != nil {
		return unindexed(err, kind, "while the kind cannot be listed for the cache", opts...)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	sharded, owned := r.kinds.isSharded(kind), r.kinds.isOwned(kind)
	return meta.SetList(list, slices.DeleteFunc(items, func(item runtime.Object) bool {
		about, err := meta.Accessor(item)
		return err == nil && !(sharded && r.mine(kind, about, false) || owned && r.mine(kind, about, true))
	}))
}

// join lists what is in the first, and what the second has besides.
func (r *reader) join(ctx context.Context, kind schema.GroupKind, list client.ObjectList, first, second client.Reader, byOwner bool, opts ...client.ListOption) error {
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
		// The first knows better about what is open to this member by it: what it does not have is gone. It may have
		// more, of slots on their way.
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
