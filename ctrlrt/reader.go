package ctrlrt

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
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
	"github.com/rota-dev/rota/internal/controllers"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/feed"
)

// reader answers Get and List of sharded kinds. The manager's cache would return NotFound for objects of other members.
//
//   - Get of another member's object is answered by the API server, or by the cache of Manager.Whole if that has the
//     kind. The owner of an object of an owned kind is only known from the object. If the watch shows all objects of an
//     owned kind, the cache answers for those that do not exist.
//   - List by a sharded controller that is For the kind, or Owns it, returns this member's share. List by other callers
//     returns all objects.
//
// Slots may be open although a kind cannot be listed (delivery.Share.Incomplete). Then the cache is incomplete, and no
// objects of that kind are read from it.
//
// A kind may be in several caches, and none of them is always the newest. A reconciler must read from the cache that
// its events come from. If it found a deleted child in another cache, no event would ever correct that.
type reader struct {
	client.Reader
	// children holds, by owners, the objects of kinds that are sharded both ways. It is nil if there are no such kinds.
	children atomic.Pointer[cache.Cache]
	// whole is the cache of Manager.Whole.
	whole func() (client.Reader, error)
	// direct reads from the API server. live does so within the namespaces and selectors of the cache's options.
	direct client.Reader
	live   *uncached
	rota   *rota.Rota
	share  *delivery.Share // shareOf the rota
	kinds  *kinds
	scheme *runtime.Scheme
	log    logr.Logger
	lists  places
	scopes sync.Map // the scopes of kinds
	// consistent is true if reads of the manager's client wait until the cache shows this member's writes.
	consistent bool
}

// caches returns the two caches of a kind that is sharded both ways, in the order in which to read from them. byOwner
// is true if the first is the cache by owners. ok is false for other kinds.
func (r *reader) caches(ctx context.Context, kind schema.GroupKind) (first, second client.Reader, byOwner, ok bool) {
	children := r.children.Load()
	if children == nil || !r.kinds.isBoth(kind) {
		return nil, nil, false, false
	}
	if askerFrom(ctx, r.rota).owns(kind) {
		return *children, r.Reader, true, true
	}
	return r.Reader, *children, false, true
}

// mine reports whether an object is in this member's share, by its own key or with byOwner by its owner's key.
func (r *reader) mine(kind schema.GroupKind, obj metav1.Object, byOwner bool) bool {
	slotOf := r.share.SlotOf
	if byOwner {
		slotOf = r.share.OwnerSlotOf
	}
	n, ok := slotOf(kind, obj)
	return ok && r.rota.Adapt(adapter.Grant()).Gate.Owns(n)
}

// elsewhere returns the reader for other members' objects of a sharded kind. only is true if the caller must read all
// objects from it, because its events come from there or because it gets none.
func (r *reader) elsewhere(ctx context.Context, kind schema.GroupKind) (from client.Reader, only bool, err error) {
	if !r.kinds.inWhole(kind) {
		return r.live, false, nil
	}
	whole, err := r.whole()
	if err == nil && r.awaits(ctx) {
		whole = &awaited{whole, r}
	}
	return whole, !r.shares(askerFrom(ctx, r.rota), kind), err
}

// shares reports whether the caller is a sharded controller that works on its share of the kind.
func (r *reader) shares(a *asker, kind schema.GroupKind) bool {
	return a != nil && (r.kinds.isFor(kind, a.controller) || a.owns(kind) && r.kinds.isOwned(kind))
}

// incomplete reports whether the cache lacks objects of this member's share.
func (r *reader) incomplete(kind schema.GroupKind) bool { return r.share.Incomplete(kind) }

// absent reports whether the cache's NotFound of a child holds for all children, not only for this member's. It is
// false if that is not known, or if a read must see this member's writes: the cache does not wait for those of others'
// children.
func (r *reader) absent(kind schema.GroupKind, key client.ObjectKey) bool {
	_, scoped := r.scopes.Load(kind) // or else the key may have a namespace that is none
	return !r.consistent && (scoped || key.Namespace == "") && r.share.Absent(kind, key)
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return r.Reader.Get(ctx, key, obj, opts...)
	}
	kind := gvk.GroupKind()
	if !r.kinds.isSharded(kind) && !r.kinds.isOwned(kind) {
		return r.Reader.Get(ctx, key, obj, opts...)
	}
	key = r.keyOf(gvk, key)
	if controllers.Deleted(ctx, r.share, kind, key) {
		// the error of a cache
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
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
		view := feed.ViewOwned
		if !both {
			from, view = r.Reader, feed.ViewShare
		}
		if r.incomplete(kind) {
			return others.Get(ctx, key, obj, opts...)
		}
		if err := r.await(ctx, kind, key, view); err != nil {
			return err
		}
		blank := obj.DeepCopyObject()
		err := from.Get(ctx, key, obj, opts...)
		switch {
		case err == nil && !r.incomplete(kind) && r.mine(kind, obj, true):
			return nil
		case err != nil && (!apierrors.IsNotFound(err) || !both && r.absent(kind, key)):
			return err
		}
		// Decoding adds to the object, which may share memory with the cache.
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(blank).Elem())
		return others.Get(ctx, key, obj, opts...)
	}
	// Check ownership first. An object may be in the cache although its slot is about to move and its next owner to
	// change it.
	if !r.rota.Owns(kind, key) {
		return others.Get(ctx, key, obj, opts...)
	}
	if err := r.await(ctx, kind, key, feed.ViewShare); err != nil {
		return err
	}
	if r.consistent && !r.rota.Owns(kind, key) {
		return others.Get(ctx, key, obj, opts...) // the slot was lost while the read waited
	}
	err = r.Reader.Get(ctx, key, obj, opts...)
	if apierrors.IsNotFound(err) && !r.rota.Owns(kind, key) {
		return others.Get(ctx, key, obj, opts...) // the slot was lost meanwhile, and its objects were dropped
	}
	return err
}

// List implements client.Reader. Which objects of a sharded kind it returns depends on the caller; see reader.
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
	case !r.shares(askerFrom(ctx, r.rota), kind):
		return r.listLive(ctx, kind, list, opts...)
	case r.kinds.isKept(kind) && r.kinds.inWhole(kind):
		if r.incomplete(kind) {
			return others.List(ctx, list, opts...)
		}
		if err := r.awaitList(ctx, kind, feed.ViewShare, opts...); err != nil {
			return err
		}
		return r.join(ctx, kind, list, r.Reader, others, false, opts...)
	default:
		r.reportOrphans(askerFrom(ctx, r.rota), kind)
		r.reportShare(askerFrom(ctx, r.rota), kind)
		return r.listShare(ctx, kind, list, opts...)
	}
}

// reportOrphans logs that a List by the controller that owns a kind leaves out objects without a controlling owner.
func (r *reader) reportOrphans(a *asker, kind schema.GroupKind) {
	if !a.owns(kind) || !r.kinds.isOwned(kind) {
		return
	}
	if place, first := r.lists.first(kind, "owned by", a.controller); first {
		r.log.Info("A List by a controller of a kind that it Owns leaves out objects without a controlling owner of the "+
			"kind that it is For, since this member's share has the children of its own objects only. If there are such "+
			"objects, for instance in other namespaces, use the option ctrlrt.Live, or KeepWhole of the ctrlrt.Manager",
			"kind", kind.String(), "controller", a.controller, "place", place)
	}
}

// reportShare logs that a List by a controller that is For the kind leaves out other members' objects. A controller
// that looks for a free port in the list, for instance, would assign a port twice.
func (r *reader) reportShare(a *asker, kind schema.GroupKind) {
	if !r.kinds.isFor(kind, a.controller) {
		return
	}
	if place, first := r.lists.first(kind, "share of", a.controller); first {
		r.log.Info("A List by a controller of the kind that it is For returns this member's share of the objects. If it "+
			"needs all of them, such as to find out what is taken, use the option ctrlrt.Live, or KeepWhole of the "+
			"ctrlrt.Manager; if it needs the share, the option ctrlrt.Share says so",
			"kind", kind.String(), "controller", a.controller, "place", place)
	}
}

// reportMade logs that a controller created an object of a kind that it owns without a controlling owner.
func (r *reader) reportMade(ctx context.Context, kind schema.GroupKind, obj metav1.Object) {
	a := askerFrom(ctx, r.rota)
	if !a.owns(kind) || !r.kinds.isOwned(kind) {
		return
	}
	if _, has := r.share.OwnerSlotOf(kind, obj); has {
		return
	}
	if place, first := r.lists.first(kind, "made by", a.controller); first {
		r.log.Info("A controller created or applied an object of a kind that it Owns without a controlling owner of the "+
			"kind that it is For. The object's events do not wake the controller, and its List leaves the object out. Call "+
			"SetControllerReference before, or KeepWhole of the ctrlrt.Manager with the kind",
			"kind", kind.String(), "controller", a.controller, "place", place,
			"namespace", obj.GetNamespace(), "name", obj.GetName())
	}
}

// listLive answers a List by a caller that does not work on a share of the kind: code outside of sharded controllers,
// or a sharded controller that is not For the kind and does not Own it.
func (r *reader) listLive(ctx context.Context, kind schema.GroupKind, list client.ObjectList,
	opts ...client.ListOption,
) error {
	from := "from outside of sharded controllers"
	if a := askerFrom(ctx, r.rota); a != nil {
		from = fmt.Sprintf("by controller %q, which neither is For it nor Owns it,", a.controller)
	}
	place, first := r.lists.first(kind)
	if first {
		r.log.Info("A List of a sharded kind "+from+" is answered by the API server, since this manager's cache holds a "+
			"share "+
			"of its objects. For a cache of all objects use KeepWhole or Whole of the ctrlrt.Manager; for this member's share, "+
			"the option ctrlrt.Share",
			"kind", kind.String(), "place", place)
	}
	return unindexed(r.live.List(ctx, list, opts...), kind,
		from+" at "+place+": this manager's cache holds a share of its objects", opts...)
}

// unindexed adds an explanation to the error of an API server that does not support the field to select by.
func unindexed(err error, kind schema.GroupKind, why string, opts ...client.ListOption) error {
	o := client.ListOptions{}
	if o.ApplyOptions(opts); !apierrors.IsBadRequest(err) || o.FieldSelector == nil || o.FieldSelector.Empty() {
		return err
	}
	return fmt.Errorf("List of %s by field %s %s, and the API server does not know that field; for a cache of all "+
		"objects with the same index call "+
		"KeepWhole of the ctrlrt.Manager with that kind, or read from the manager that its Whole returns; for this member's "+
		"share use the option "+
		"ctrlrt.Share: %w", kind, o.FieldSelector, why, err)
}

// listShare lists the objects of this member's share. For a kind that is sharded both ways it returns the objects in
// either share, each once.
func (r *reader) listShare(ctx context.Context, kind schema.GroupKind, list client.ObjectList,
	opts ...client.ListOption,
) error {
	if r.incomplete(kind) {
		return r.listMine(ctx, kind, list, opts...)
	}
	if err := r.awaitList(ctx, kind, feed.ViewShare, opts...); err != nil {
		return err
	}
	first, second, byOwner, both := r.caches(ctx, kind)
	if both {
		if err := r.awaitList(ctx, kind, feed.ViewOwned, opts...); err != nil {
			return err
		}
	}
	if !both {
		return r.Reader.List(ctx, list, opts...)
	}
	return r.join(ctx, kind, list, first, second, byOwner, opts...)
}

// listMine lists this member's share from the API server.
func (r *reader) listMine(ctx context.Context, kind schema.GroupKind, list client.ObjectList,
	opts ...client.ListOption,
) error {
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

// join lists the objects of the first reader, and the objects that only the second has.
func (r *reader) join(ctx context.Context, kind schema.GroupKind, list client.ObjectList, first, second client.Reader,
	byOwner bool, opts ...client.ListOption,
) error {
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
		// If the first reader lacks an object of this member's open slots, the object was deleted, even if the second has
		// it. The first may also have objects of slots that this member is about to get.
		name := types.NamespacedName{Namespace: about.GetNamespace(), Name: about.GetName()}
		if !r.mine(kind, about, byOwner) && !has[name] {
			items = append(items, item)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return meta.SetList(list, items)
}
