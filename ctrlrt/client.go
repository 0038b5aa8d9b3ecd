package ctrlrt

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// writingClient notes the version of each object of a sharded kind that this member writes: the slot's next owner
// waits until its cache shows that version (rule R8). Deletes need no note, their event has the version.
type writingClient struct {
	client.Client
	mgr *Manager
}

var _ client.Client = (*writingClient)(nil)

func (c *writingClient) wrote(obj client.Object, err error) error {
	if err != nil {
		return err
	}
	if gvk, gvkErr := apiutil.GVKForObject(obj, c.Scheme()); gvkErr == nil {
		share := c.mgr.rota.Share()
		if n, ok := share.SlotOf(gvk.GroupKind(), obj); ok {
			share.Wrote(gvk.GroupKind(), n, obj.GetResourceVersion())
		}
	}
	return nil
}

// Create implements client.Writer.
func (c *writingClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return c.wrote(obj, c.Client.Create(ctx, obj, opts...))
}

// Update implements client.Writer.
func (c *writingClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.wrote(obj, c.Client.Update(ctx, obj, opts...))
}

// Patch implements client.Writer.
func (c *writingClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.wrote(obj, c.Client.Patch(ctx, obj, patch, opts...))
}

// Status implements client.StatusClient.
func (c *writingClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (c *writingClient) SubResource(name string) client.SubResourceClient {
	return &writingSubResource{SubResourceClient: c.Client.SubResource(name), client: c}
}

type writingSubResource struct {
	client.SubResourceClient
	client *writingClient
}

// Update implements client.SubResourceWriter.
func (s *writingSubResource) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.client.wrote(obj, s.SubResourceClient.Update(ctx, obj, opts...))
}

// Patch implements client.SubResourceWriter.
func (s *writingSubResource) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.client.wrote(obj, s.SubResourceClient.Patch(ctx, obj, patch, opts...))
}
