package ctrlrt

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota/internal/delivery"
)

// consistentClient is a client whose reads of sharded kinds wait until the cache shows what this member wrote. A cache
// that holds a share never shows objects of other members, so that controller-runtime's own waits would last for ever:
// the consistentClient leaves the other kinds to those. Which cache answers, only the reader below knows; so the reader
// waits, by a context of ours.
type consistentClient struct {
	client.Client
	mgr *Manager
	// whole: the client reads from the cache of Manager.Whole.
	whole bool
}

// consistently returns the client with the waits that the manager's options ask for.
func (m *Manager) consistently(c client.Client, whole bool) client.Client {
	if !m.reader.consistent {
		return c
	}
	return &consistentClient{c, m, whole}
}

// kindOf returns the kind of an object or a list, and whether this member caches a share of it.
func (c *consistentClient) kindOf(obj runtime.Object) (gvk schema.GroupVersionKind, sharded bool) {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return gvk, false // the call says what is wrong
	}
	if _, list := obj.(client.ObjectList); list {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	return gvk, c.mgr.kinds.isSharded(gvk.GroupKind()) || c.mgr.kinds.isOwned(gvk.GroupKind())
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
		if c.whole {
			if err := c.mgr.reader.await(ctx, kind.GroupKind(), named, delivery.ViewWhole); err != nil {
				return err
			}
		}
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
		if c.whole {
			if err := c.mgr.reader.awaitList(ctx, kind.GroupKind(), delivery.ViewWhole, opts...); err != nil {
				return err
			}
		}
	}
	return c.Client.List(ctx, list, with[client.ListOption](opts)...)
}

// with returns options with that by which controller-runtime leaves the call to us.
func with[O any](opts []O) []O { return append(opts[:len(opts):len(opts)], any(bypass{}).(O)) }

// write makes a write of an object, after which reads wait for it unless that is disabled.
func (c *consistentClient) write(ctx context.Context, kind schema.GroupVersionKind, obj client.Object, disabled bool,
	send func(context.Context) error,
) error {
	if disabled {
		return send(delivery.Unawaited(ctx))
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
func (c *consistentClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
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

// consistentSubResource is the client of a subresource. Its Create is left out of what reads wait for, as by
// controller-runtime. Its Apply, whose options the oldest controller-runtime that this is built with lacks, is the
// client's own: the transport below notes it, and reads wait for it once it is answered.
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
