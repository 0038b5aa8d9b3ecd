package ctrlrt

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/delivery"
)

// Names of controller-runtime since v0.25. This module is built with older versions, too, so that it reaches them by
// reflection only.
const (
	enableReadYourWrites  = "EnableReadYourWritesConsistency"  // of client.CacheOptions
	disableReadYourWrites = "DisableReadYourWritesConsistency" // of the options of calls
)

// readsOwnWrites reports whether reads of the client are to wait for the manager's own writes.
func readsOwnWrites(o *client.CacheOptions) (bool, error) {
	if o == nil {
		return false, nil
	}
	field := reflect.ValueOf(*o).FieldByName(enableReadYourWrites)
	if !field.IsValid() || field.IsZero() {
		return false, nil
	}
	enabled, ok := field.Interface().(*bool)
	if !ok {
		return false, fmt.Errorf("ctrlrt: Options.Client.Cache.%s is a %s here, but this version of Rota knows it as a *bool: "+
			"leave it out, or use controller-runtime v0.25", enableReadYourWrites, field.Type())
	}
	return *enabled, nil
}

// disabled reports whether the options of a call, a pointer, say that reads do not wait.
func disabled(options any) bool {
	field := reflect.ValueOf(options).Elem().FieldByName(disableReadYourWrites)
	return field.IsValid() && field.Kind() == reflect.Bool && field.Bool()
}

// disable sets the options of a call, a pointer, so that controller-runtime's own waits leave it out.
func disable(options any) {
	if field := reflect.ValueOf(options).Elem().FieldByName(disableReadYourWrites); field.IsValid() {
		field.SetBool(true)
	}
}

// bypass is an option by which controller-runtime leaves a call to us.
type bypass struct{}

// ApplyToGet implements client.GetOption.
func (bypass) ApplyToGet(o *client.GetOptions) { disable(o) }

// ApplyToList implements client.ListOption.
func (bypass) ApplyToList(o *client.ListOptions) { disable(o) }

// ApplyToCreate implements client.CreateOption.
func (bypass) ApplyToCreate(o *client.CreateOptions) { disable(o) }

// ApplyToUpdate implements client.UpdateOption.
func (bypass) ApplyToUpdate(o *client.UpdateOptions) { disable(o) }

// ApplyToPatch implements client.PatchOption.
func (bypass) ApplyToPatch(o *client.PatchOptions) { disable(o) }

// ApplyToApply implements client.ApplyOption.
func (bypass) ApplyToApply(o *client.ApplyOptions) { disable(o) }

// ApplyToDelete implements client.DeleteOption.
func (bypass) ApplyToDelete(o *client.DeleteOptions) { disable(o) }

// ApplyToSubResourceUpdate implements client.SubResourceUpdateOption.
func (bypass) ApplyToSubResourceUpdate(o *client.SubResourceUpdateOptions) { disable(o) }

// ApplyToSubResourcePatch implements client.SubResourcePatchOption.
func (bypass) ApplyToSubResourcePatch(o *client.SubResourcePatchOptions) { disable(o) }

// informed is a reader that gives out informers, as controller-runtime's own waits need it.
type informed struct {
	cache.Informers
	reader client.Reader
}

// Get implements client.Reader.
func (i *informed) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return i.reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (i *informed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return i.reader.List(ctx, list, opts...)
}

type awaitingKey struct{}

// awaiting returns the context of a read that waits.
func awaiting(ctx context.Context) context.Context {
	return context.WithValue(ctx, awaitingKey{}, true)
}

// awaits reports whether the read with the context waits.
func (r *reader) awaits(ctx context.Context) bool {
	return r.consistent && ctx.Value(awaitingKey{}) != nil
}

// await waits until the informers of a view show what this member wrote to an object.
func (r *reader) await(ctx context.Context, kind schema.GroupKind, key client.ObjectKey, view delivery.View) error {
	if !r.awaits(ctx) {
		return nil
	}
	return caughtUp(shareOf(r.rota).AwaitWrite(ctx, kind, types.NamespacedName(key), view))
}

// awaitList waits until the informers of a view show what this member wrote to the objects of a List.
func (r *reader) awaitList(ctx context.Context, kind schema.GroupKind, view delivery.View,
	opts ...client.ListOption,
) error {
	if !r.awaits(ctx) {
		return nil
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	return caughtUp(shareOf(r.rota).AwaitWrites(ctx, kind, o.Namespace, view))
}

// caughtUp says what controller-runtime says.
func caughtUp(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("failed to wait for cache to catch up: %w", err)
}
