package ctrlrt

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/delivery/ledger"
	"github.com/rota-dev/rota/internal/upstream/controllerruntime"
)

// consistentClient is a client whose reads of sharded kinds wait until the cache shows this member's writes. A cache
// that holds a share never shows objects of other members, so the waits of controller-runtime would never end. Other
// kinds are left to controller-runtime. Only the reader below decides which cache answers, so the reader waits if the
// context asks for it; see awaiting.
type consistentClient struct {
	client.Client
	mgr *Manager
}

// consistently returns the client, with reads that wait for writes if the manager's options ask for that.
func (m *Manager) consistently(c client.Client) client.Client {
	if !m.reader.consistent {
		return c
	}
	return &consistentClient{c, m}
}

// kindOf returns the kind of an object or a list, and whether this member caches a share of it.
func (c *consistentClient) kindOf(obj runtime.Object) (gvk schema.GroupVersionKind, sharded bool) {
	return c.mgr.reader.kindOf(obj)
}

// Get implements client.Reader.
func (c *consistentClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption,
) error {
	kind, sharded := c.kindOf(obj)
	if !sharded {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	if o := (client.GetOptions{}); !controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts)) {
		named := c.mgr.reader.keyOf(kind, key)
		if err := c.mgr.inFlight.await(ctx, kind.GroupKind(), named); err != nil {
			return err
		}
		ctx = awaiting(ctx)
	}
	return c.Client.Get(ctx, key, obj, with[client.GetOption](opts)...)
}

// List implements client.Reader.
func (c *consistentClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, sharded := c.kindOf(list)
	if !sharded {
		return c.Client.List(ctx, list, opts...)
	}
	if o := (client.ListOptions{}); !controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts)) {
		if err := c.mgr.inFlight.awaitAll(ctx, kind.GroupKind()); err != nil {
			return err
		}
		ctx = awaiting(ctx)
	}
	return c.Client.List(ctx, list, with[client.ListOption](opts)...)
}

// with returns the options, and one more that keeps controller-runtime from waiting.
func with[O any](opts []O) []O { return append(opts[:len(opts):len(opts)], any(bypass{}).(O)) }

// write makes a write of an object. Later reads wait for it, unless disabled is true.
func (c *consistentClient) write(ctx context.Context, kind schema.GroupVersionKind, obj client.Object, disabled bool,
	send func(context.Context) error,
) error {
	if disabled {
		return send(ledger.Unawaited(ctx))
	}
	defer c.mgr.inFlight.begin(kind.GroupKind(), c.mgr.reader.keyOf(kind, client.ObjectKeyFromObject(obj)))()
	return send(ctx)
}

// Create implements client.Writer.
func (c *consistentClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	kind, sharded := c.kindOf(obj)
	if !sharded {
		return c.Client.Create(ctx, obj, opts...)
	}
	o := client.CreateOptions{}
	skip := controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts))
	return c.write(ctx, kind, obj, skip, func(ctx context.Context) error {
		return c.Client.Create(ctx, obj, with[client.CreateOption](opts)...)
	})
}

// Update implements client.Writer.
func (c *consistentClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	kind, sharded := c.kindOf(obj)
	if !sharded {
		return c.Client.Update(ctx, obj, opts...)
	}
	o := client.UpdateOptions{}
	skip := controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts))
	return c.write(ctx, kind, obj, skip, func(ctx context.Context) error {
		return c.Client.Update(ctx, obj, with[client.UpdateOption](opts)...)
	})
}

// Patch implements client.Writer.
func (c *consistentClient) Patch(ctx context.Context, obj client.Object, patch client.Patch,
	opts ...client.PatchOption,
) error {
	kind, sharded := c.kindOf(obj)
	if !sharded {
		return c.Client.Patch(ctx, obj, patch, opts...)
	}
	o := client.PatchOptions{}
	skip := controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts))
	return c.write(ctx, kind, obj, skip, func(ctx context.Context) error {
		return c.Client.Patch(ctx, obj, patch, with[client.PatchOption](opts)...)
	})
}

// Apply implements client.Writer.
func (c *consistentClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration,
	opts ...client.ApplyOption,
) error {
	about := aboutApplied(obj)
	if about == nil {
		return c.Client.Apply(ctx, obj, opts...)
	}
	kind, sharded := c.kindOf(about)
	if !sharded {
		return c.Client.Apply(ctx, obj, opts...)
	}
	o := client.ApplyOptions{}
	skip := controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts))
	return c.write(ctx, kind, about, skip, func(ctx context.Context) error {
		return c.Client.Apply(ctx, obj, with[client.ApplyOption](opts)...)
	})
}

// Delete implements client.Writer.
func (c *consistentClient) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	kind, sharded := c.kindOf(obj)
	if !sharded {
		return c.Client.Delete(ctx, obj, opts...)
	}
	o := client.DeleteOptions{}
	skip := controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts))
	return c.write(ctx, kind, obj, skip, func(ctx context.Context) error {
		return c.Client.Delete(ctx, obj, with[client.DeleteOption](opts)...)
	})
}

// Status implements client.StatusClient.
func (c *consistentClient) Status() client.SubResourceWriter { return c.SubResource("status") }

// SubResource implements client.SubResourceClientConstructor.
func (c *consistentClient) SubResource(name string) client.SubResourceClient {
	return &consistentSubResource{c.Client.SubResource(name), c}
}

// consistentSubResource is the client of a subresource. Reads do not wait for its Create, as with controller-runtime.
//
// Its Apply is promoted from the inner client, since the type of its options does not exist in controller-runtime
// v0.22. The transport below records the write, and reads wait for it. It differs from the other writes in three ways:
//
//   - A read that begins while the Apply is in flight does not wait for it.
//   - DisableReadYourWritesConsistency has no effect on it: reads wait for it once it is answered.
//   - controller-runtime starts an informer of the kind in the applied form, if there is none, and waits until it has
//     synced.
type consistentSubResource struct {
	client.SubResourceClient
	of *consistentClient
}

// Update implements client.SubResourceWriter.
func (s *consistentSubResource) Update(ctx context.Context, obj client.Object,
	opts ...client.SubResourceUpdateOption,
) error {
	kind, sharded := s.of.kindOf(obj)
	if !sharded {
		return s.SubResourceClient.Update(ctx, obj, opts...)
	}
	o := client.SubResourceUpdateOptions{}
	skip := controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts))
	return s.of.write(ctx, kind, obj, skip, func(ctx context.Context) error {
		return s.SubResourceClient.Update(ctx, obj, with[client.SubResourceUpdateOption](opts)...)
	})
}

// Patch implements client.SubResourceWriter.
func (s *consistentSubResource) Patch(ctx context.Context, obj client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	kind, sharded := s.of.kindOf(obj)
	if !sharded {
		return s.SubResourceClient.Patch(ctx, obj, patch, opts...)
	}
	o := client.SubResourcePatchOptions{}
	skip := controllerruntime.SkipsOwnWrites(o.ApplyOptions(opts))
	return s.of.write(ctx, kind, obj, skip, func(ctx context.Context) error {
		return s.SubResourceClient.Patch(ctx, obj, patch, with[client.SubResourcePatchOption](opts)...)
	})
}
