package ctrlrt

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota/internal/delivery/feed"
)

type awaitingKey struct{}

// awaiting returns the context of a read that waits.
func awaiting(ctx context.Context) context.Context {
	return context.WithValue(ctx, awaitingKey{}, true)
}

// awaits reports whether the read with the context waits.
func (r *reader) awaits(ctx context.Context) bool {
	return r.consistent && ctx.Value(awaitingKey{}) != nil
}

// await waits until the informers of a view show this member's writes to an object.
func (r *reader) await(ctx context.Context, kind schema.GroupKind, key client.ObjectKey, view feed.View) error {
	if !r.awaits(ctx) {
		return nil
	}
	return caughtUp(r.share.AwaitWrite(ctx, kind, key, view))
}

// awaitList waits until the informers of a view show this member's writes to the objects of a List.
func (r *reader) awaitList(ctx context.Context, kind schema.GroupKind, view feed.View,
	opts ...client.ListOption,
) error {
	if !r.awaits(ctx) {
		return nil
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	return caughtUp(r.share.AwaitWrites(ctx, kind, o.Namespace, view))
}

// caughtUp wraps an error as controller-runtime does.
func caughtUp(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("failed to wait for cache to catch up: %w", err)
}

// awaited is the cache of Manager.Whole. Its reads with a context of awaiting wait until it shows this member's writes.
// It leaves kinds that are not sharded to controller-runtime.
type awaited struct {
	client.Reader
	by *reader
}

// kindOf returns the kind of an object or a list, and whether reads of it wait.
func (a *awaited) kindOf(ctx context.Context, obj runtime.Object) (gvk schema.GroupVersionKind, waits bool) {
	if !a.by.awaits(ctx) {
		return gvk, false
	}
	return a.by.kindOf(obj)
}

// Get implements client.Reader.
func (a *awaited) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if gvk, waits := a.kindOf(ctx, obj); waits {
		if err := a.by.await(ctx, gvk.GroupKind(), a.by.keyOf(gvk, key), feed.ViewWhole); err != nil {
			return err
		}
	}
	return a.Reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (a *awaited) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if gvk, waits := a.kindOf(ctx, list); waits {
		if err := a.by.awaitList(ctx, gvk.GroupKind(), feed.ViewWhole, opts...); err != nil {
			return err
		}
	}
	return a.Reader.List(ctx, list, opts...)
}

// kindOf returns the kind of an object or a list, and whether this member caches a share of it.
func (r *reader) kindOf(obj runtime.Object) (gvk schema.GroupVersionKind, sharded bool) {
	gvk, err := apiutil.GVKForObject(obj, r.scheme)
	if err != nil {
		return gvk, false // the call returns the error
	}
	if _, list := obj.(client.ObjectList); list {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	return gvk, r.kinds.isSharded(gvk.GroupKind()) || r.kinds.isOwned(gvk.GroupKind())
}
