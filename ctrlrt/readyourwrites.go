package ctrlrt

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// bypass is an option that keeps controller-runtime from waiting in a call.
type bypass struct{}

// These implement the options of package client.
func (bypass) ApplyToGet(o *client.GetOptions)       { controllerruntime.SkipOwnWrites(o) }
func (bypass) ApplyToList(o *client.ListOptions)     { controllerruntime.SkipOwnWrites(o) }
func (bypass) ApplyToCreate(o *client.CreateOptions) { controllerruntime.SkipOwnWrites(o) }
func (bypass) ApplyToUpdate(o *client.UpdateOptions) { controllerruntime.SkipOwnWrites(o) }
func (bypass) ApplyToPatch(o *client.PatchOptions)   { controllerruntime.SkipOwnWrites(o) }
func (bypass) ApplyToApply(o *client.ApplyOptions)   { controllerruntime.SkipOwnWrites(o) }
func (bypass) ApplyToDelete(o *client.DeleteOptions) { controllerruntime.SkipOwnWrites(o) }
func (bypass) ApplyToSubResourceUpdate(o *client.SubResourceUpdateOptions) {
	controllerruntime.SkipOwnWrites(o)
}
func (bypass) ApplyToSubResourcePatch(o *client.SubResourcePatchOptions) {
	controllerruntime.SkipOwnWrites(o)
}

// informed is a reader that gives out informers, which the waits of controller-runtime need.
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
