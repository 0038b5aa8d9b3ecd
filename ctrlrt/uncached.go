package ctrlrt

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// uncached reads from the API server what the manager's cache would hold if it held all objects: of its namespaces, by
// its selectors, with its transform. So an answer does not depend on which member owns an object.
type uncached struct {
	client.Reader
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	options cache.Options
	// told logs once that what NewCache changes of the options is not known; nil: there is no NewCache.
	told func()

	known sync.Map // bounds by schema.GroupVersionKind
}

// bounds are the options of a cache for one kind.
type bounds struct {
	all cache.Config
	// namespaces are those that the cache is limited to; "" stands for all others. nil: no limit.
	namespaces map[string]cache.Config
}

// of returns the bounds of a kind, as cache.New computes them.
func (u *uncached) of(gvk schema.GroupVersionKind) (bounds, error) {
	if u.told != nil {
		u.told()
	}
	if b, ok := u.known.Load(gvk); ok {
		return b.(bounds), nil
	}
	mapping, err := u.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return bounds{}, err
	}
	o := u.options
	b := bounds{all: cache.Config{LabelSelector: o.DefaultLabelSelector, FieldSelector: o.DefaultFieldSelector,
		Transform: o.DefaultTransform}}
	defaults := b.all
	b.namespaces = maps.Clone(o.DefaultNamespaces)
	var of cache.Config
	for obj, by := range o.ByObject {
		if other, err := apiutil.GVKForObject(obj, u.scheme); err != nil || other != gvk {
			continue
		}
		of = cache.Config{LabelSelector: by.Label, FieldSelector: by.Field, Transform: by.Transform}
		b.all = inherit(of, defaults)
		if by.Namespaces != nil {
			b.namespaces = maps.Clone(by.Namespaces)
		}
	}
	for namespace, config := range b.namespaces {
		config = inherit(inherit(inherit(config, of), o.DefaultNamespaces[namespace]), defaults)
		if namespace == metav1.NamespaceAll {
			for other := range b.namespaces {
				if other != metav1.NamespaceAll {
					config.FieldSelector = andFields(config.FieldSelector, fields.OneTermNotEqualSelector("metadata.namespace", other))
				}
			}
		}
		b.namespaces[namespace] = config
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace || len(b.namespaces) == 0 {
		b.namespaces = nil
	}
	u.known.Store(gvk, b)
	return b, nil
}

// inherit returns the config, with unset fields taken from another.
func inherit(config, from cache.Config) cache.Config {
	if config.LabelSelector == nil {
		config.LabelSelector = from.LabelSelector
	}
	if config.FieldSelector == nil {
		config.FieldSelector = from.FieldSelector
	}
	if config.Transform == nil {
		config.Transform = from.Transform
	}
	return config
}

// in returns the config of a namespace. The error is the one of a cache that is limited to other namespaces.
func (b bounds) in(namespace, verb string, about any) (cache.Config, error) {
	if b.namespaces == nil {
		return b.all, nil
	}
	if config, ok := b.namespaces[namespace]; ok {
		return config, nil
	}
	if config, ok := b.namespaces[metav1.NamespaceAll]; ok {
		return config, nil
	}
	return cache.Config{}, fmt.Errorf("unable to %s: %v because of unknown namespace for the cache", verb, about)
}

// Get implements client.Reader.
func (u *uncached) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, u.scheme)
	if err != nil {
		return err
	}
	b, err := u.of(gvk)
	if err != nil {
		return err
	}
	config, err := b.in(key.Namespace, "get", key)
	if err != nil {
		return err
	}
	blank := obj.DeepCopyObject()
	if err := u.Reader.Get(ctx, key, obj, opts...); err != nil {
		return err
	}
	selected, err := u.selected(ctx, gvk, config, obj)
	if err == nil && !selected {
		// as a cache says it
		err = apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	if err != nil {
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(blank).Elem())
		return err
	}
	transformed, err := transform(config.Transform, obj)
	if err != nil || transformed == runtime.Object(obj) {
		return err
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(transformed).Elem())
	return nil
}

// selected reports whether the cache's selectors select an object. Only the API server knows the fields of an object by
// which it can be selected.
func (u *uncached) selected(ctx context.Context, gvk schema.GroupVersionKind, config cache.Config,
	obj client.Object,
) (bool, error) {
	if config.LabelSelector != nil && !config.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
		return false, nil
	}
	if config.FieldSelector == nil || config.FieldSelector.Empty() {
		return true, nil
	}
	about := fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()}
	all := slices.IndexFunc(config.FieldSelector.Requirements(),
		func(r fields.Requirement) bool { return !about.Has(r.Field) }) < 0
	if all {
		return config.FieldSelector.Matches(about), nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err := u.Reader.List(ctx, list, &client.ListOptions{
		Namespace: obj.GetNamespace(), FieldSelector: andFields(config.FieldSelector,
			fields.OneTermEqualSelector("metadata.name", obj.GetName())),
	})
	return len(list.Items) > 0, err
}

// List implements client.Reader.
func (u *uncached) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := apiutil.GVKForObject(list, u.scheme)
	if err != nil {
		return err
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	b, err := u.of(gvk)
	if err != nil {
		return err
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if b.namespaces == nil || o.Namespace != "" {
		config, err := b.in(o.Namespace, "list", o.Namespace)
		if err != nil {
			return err
		}
		return u.listIn(ctx, list, o, config)
	}
	var items []runtime.Object
	for _, namespace := range slices.Sorted(maps.Keys(b.namespaces)) {
		part, in := list.DeepCopyObject().(client.ObjectList), o
		in.Namespace = namespace
		if o.Limit > 0 {
			if in.Limit = o.Limit - int64(len(items)); in.Limit <= 0 {
				break
			}
		}
		if err := u.listIn(ctx, part, in, b.namespaces[namespace]); err != nil {
			return err
		}
		more, err := meta.ExtractList(part)
		if err != nil {
			return err
		}
		items = append(items, more...)
		list.SetResourceVersion(part.GetResourceVersion())
	}
	return meta.SetList(list, items)
}

func (u *uncached) listIn(ctx context.Context, list client.ObjectList, o client.ListOptions,
	config cache.Config,
) error {
	if s := config.LabelSelector; s != nil {
		requirements, selectable := s.Requirements()
		if !selectable {
			return meta.SetList(list, nil)
		}
		if o.LabelSelector == nil {
			o.LabelSelector = labels.Everything()
		}
		o.LabelSelector = o.LabelSelector.Add(requirements...)
	}
	if config.FieldSelector != nil {
		o.FieldSelector = andFields(config.FieldSelector, o.FieldSelector)
	}
	if err := u.Reader.List(ctx, list, &o); err != nil || config.Transform == nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for n, item := range items {
		if items[n], err = transform(config.Transform, item); err != nil {
			return err
		}
	}
	return meta.SetList(list, items)
}

// transform applies the cache's transform to an object.
func transform(f toolscache.TransformFunc, obj runtime.Object) (runtime.Object, error) {
	if f == nil {
		return obj, nil
	}
	out, err := f(obj)
	if err != nil {
		return nil, fmt.Errorf("the cache's transform: %w", err)
	}
	if reflect.TypeOf(out) != reflect.TypeOf(obj) {
		return nil, fmt.Errorf("the cache's transform made a %T of a %T", out, obj)
	}
	return out.(runtime.Object), nil
}

func andFields(a, b fields.Selector) fields.Selector {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	default:
		return fields.AndSelectors(a, b)
	}
}
