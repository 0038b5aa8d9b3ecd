package ctrlrt

import (
	"context"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota/internal/controllers"
)

// writingClient is the manager's client. It adds the labels by which objects are delivered. The transport below it
// records its writes.
type writingClient struct {
	client.Client
	mgr *Manager
}

var _ client.Client = (*writingClient)(nil)

// Live is an option of Get and List of the manager's client. With it the API server answers, not a cache, with a
// consistent read. A reconciler needs it to find objects outside of this member's share: other members' objects, and
// objects of an owned kind that have no owner yet and that it wants to adopt.
var Live live

type live struct{}

// These implement the options of package client.
func (live) ApplyToGet(*client.GetOptions)   {}
func (live) ApplyToList(*client.ListOptions) {}

// Share is an option of List of the manager's client and cache. With it List returns this member's share. It is for
// code outside of sharded controllers, whose List otherwise returns all objects.
var Share share

type share struct{}

// ApplyToList implements client.ListOption.
func (share) ApplyToList(*client.ListOptions) {}

func has(opts []client.ListOption, option client.ListOption) bool {
	for _, o := range opts {
		if o == option {
			return true
		}
	}
	return false
}

var (
	_ client.GetOption  = Live
	_ client.ListOption = Live
	_ client.ListOption = Share
)

// Get implements client.Reader.
func (c *writingClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object,
	opts ...client.GetOption,
) error {
	from := client.Reader(c.Client)
	for _, o := range opts {
		if o == client.GetOption(Live) {
			from = c.mgr.reader.direct
		}
	}
	if err := from.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	gvk, _ := apiutil.GVKForObject(obj, c.Scheme()) // kinds outside of the scheme are not sharded
	c.hideStamps(gvk.GroupKind(), obj)
	// Caches and the API server may answer with another object of the same name.
	if controllers.Namesake(ctx, shareOf(c.mgr.rota), gvk.GroupKind(), obj) {
		empty := reflect.New(reflect.TypeOf(obj).Elem())
		reflect.ValueOf(obj).Elem().Set(empty.Elem())
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	return nil
}

// List implements client.Reader.
func (c *writingClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if has(opts, Live) {
		return c.mgr.reader.direct.List(ctx, list, opts...)
	}
	return c.Client.List(ctx, list, opts...)
}

// Create implements client.Writer.
func (c *writingClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	_ = c.stamp(obj)
	if err := c.Client.Create(ctx, obj, opts...); err != nil {
		return err
	}
	if o := (client.CreateOptions{}); len(o.ApplyOptions(opts).DryRun) == 0 {
		gvk, _ := apiutil.GVKForObject(obj, c.Scheme()) // kinds outside of the scheme are not sharded
		c.mgr.reader.reportMade(ctx, gvk.GroupKind(), obj)
	}
	return nil
}

// Update implements client.Writer.
func (c *writingClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	_ = c.stamp(obj)
	return c.Client.Update(ctx, obj, opts...)
}

// Patch implements client.Writer. Patches that are computed from the object carry its labels. If a raw patch removes
// labels, the labeller restores them. For apply patches see Apply.
func (c *writingClient) Patch(ctx context.Context, obj client.Object, patch client.Patch,
	opts ...client.PatchOption,
) error {
	if patch.Type() != types.ApplyPatchType {
		_ = c.stamp(obj)
		return c.Client.Patch(ctx, obj, patch, opts...)
	}
	if err := unstamped(c.stamp(obj), func() error { return c.Client.Patch(ctx, obj, patch, opts...) }); err != nil {
		return err
	}
	gvk, _ := apiutil.GVKForObject(obj, c.Scheme()) // kinds outside of the scheme are not sharded
	c.hideStamps(gvk.GroupKind(), obj)
	o := client.PatchOptions{}
	if len(o.ApplyOptions(opts).DryRun) == 0 {
		c.mgr.reader.reportMade(ctx, gvk.GroupKind(), obj)
		labelled := c.complete(ctx, gvk, obj)
		if labelled != nil {
			obj.SetLabels(labelled.Labels)
			obj.SetResourceVersion(labelled.ResourceVersion)
		}
	}
	return nil
}

// Apply implements client.Writer. The labels are applied with the other fields, by the user's field manager. So a new
// object has them without a second write, and loses them when it is applied without Rota. Get leaves them out of that
// manager's fields.
func (c *writingClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if err := unstamped(c.stampApplied(obj), func() error { return c.Client.Apply(ctx, obj, opts...) }); err != nil {
		return err
	}
	about := aboutApplied(obj)
	if about == nil {
		return nil
	}
	o := client.ApplyOptions{}
	if len(o.ApplyOptions(opts).DryRun) == 0 {
		c.mgr.reader.reportMade(ctx, about.GroupVersionKind().GroupKind(), about)
		if labelled := c.complete(ctx, about.GroupVersionKind(), about); labelled != nil {
			setApplied(obj, labelled)
		}
	}
	return nil
}
