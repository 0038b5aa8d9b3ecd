package ctrlrt

import (
	"context"
	"fmt"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		return false, fmt.Errorf("ctrlrt: Options.Client.Cache.%s is a %s here, but this version of Rota knows it as a "+
			"*bool: leave it out, or use controller-runtime v0.25", enableReadYourWrites, field.Type())
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

// These implement the options of package client.
func (bypass) ApplyToGet(o *client.GetOptions)                             { disable(o) }
func (bypass) ApplyToList(o *client.ListOptions)                           { disable(o) }
func (bypass) ApplyToCreate(o *client.CreateOptions)                       { disable(o) }
func (bypass) ApplyToUpdate(o *client.UpdateOptions)                       { disable(o) }
func (bypass) ApplyToPatch(o *client.PatchOptions)                         { disable(o) }
func (bypass) ApplyToApply(o *client.ApplyOptions)                         { disable(o) }
func (bypass) ApplyToDelete(o *client.DeleteOptions)                       { disable(o) }
func (bypass) ApplyToSubResourceUpdate(o *client.SubResourceUpdateOptions) { disable(o) }
func (bypass) ApplyToSubResourcePatch(o *client.SubResourcePatchOptions)   { disable(o) }

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
