package ctrlrt

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/delivery/ledger"
)

// consistentClient is a client whose reads of sharded kinds wait until the cache shows what this member wrote. A cache
// that holds a share never shows objects of other members, so that controller-runtime's own waits would last for ever.
// The consistentClient leaves the other kinds to those. Only the reader below knows which cache answers. So it does the
// waiting; the context tells it to.
type consistentClient struct {
	client.Client
	mgr *Manager
}

// consistently returns the client with the waits that the manager's options ask for.
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
	if o := (client.GetOptions{}); !disabled(o.ApplyOptions(opts)) {
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
	if o := (client.ListOptions{}); !disabled(o.ApplyOptions(opts)) {
		if err := c.mgr.inFlight.awaitAll(ctx, kind.GroupKind()); err != nil {
			return err
		}
		ctx = awaiting(ctx)
	}
	return c.Client.List(ctx, list, with[client.ListOption](opts)...)
}

// with returns the options, and one that has controller-runtime leave the call to us.
func with[O any](opts []O) []O { return append(opts[:len(opts):len(opts)], any(bypass{}).(O)) }

// write makes a write of an object, after which reads wait for it unless that is disabled.
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
	return c.write(ctx, kind, obj, disabled(o.ApplyOptions(opts)), func(ctx context.Context) error {
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
	return c.write(ctx, kind, obj, disabled(o.ApplyOptions(opts)), func(ctx context.Context) error {
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
	return c.write(ctx, kind, obj, disabled(o.ApplyOptions(opts)), func(ctx context.Context) error {
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
	return c.write(ctx, kind, about, disabled(o.ApplyOptions(opts)), func(ctx context.Context) error {
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
	return c.write(ctx, kind, obj, disabled(o.ApplyOptions(opts)), func(ctx context.Context) error {
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
// Its Apply is the client's own: the type of its options does not exist in controller-runtime v0.22, with which this is
// built, too, and no reflection declares a method. The transport below notes what it writes, and reads wait for it.
// It differs from the other writes in three ways:
//
//   - A read that begins while the Apply is in flight does not wait for it.
//   - DisableReadYourWritesConsistency has no effect on it: reads wait for it once it is answered.
//   - controller-runtime starts an informer of the kind in the form that is applied, if there is none, and waits until
//     it has synced.
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
	return s.of.write(ctx, kind, obj, disabled(o.ApplyOptions(opts)), func(ctx context.Context) error {
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
	return s.of.write(ctx, kind, obj, disabled(o.ApplyOptions(opts)), func(ctx context.Context) error {
		return s.SubResourceClient.Patch(ctx, obj, patch, with[client.SubResourcePatchOption](opts)...)
	})
}
