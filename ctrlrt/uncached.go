package ctrlrt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// uncached reads from the API server, with the namespaces, selectors and transform of the manager's cache. So its
// answers do not depend on which member owns an object. It returns no error where a cache returns none: for invalid
// names, for selectors that select nothing, and for contexts that have ended. It does not send options that a cache
// does not support: Raw and Continue.
type uncached struct {
	client.Reader
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	options cache.Options
	// report logs once that the changes that NewCache makes to the options are unknown. It is nil without a NewCache.
	report func()

	known sync.Map // bounds by schema.GroupVersionKind
}

// bounds are the options of a cache for one kind.
type bounds struct {
	all cache.Config
	// namespaced is the kind's scope.
	namespaced bool
	// namespaces are the namespaces of the cache. "" stands for all others. It is nil if the cache is not limited.
	namespaces map[string]cache.Config
}

// of returns the bounds of a kind, as cache.New computes them.
func (u *uncached) of(gvk schema.GroupVersionKind) (bounds, error) {
	if u.report != nil {
		u.report()
	}
	if b, ok := u.known.Load(gvk); ok {
		return b.(bounds), nil
	}
	mapping, err := u.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return bounds{}, err
	}
	o := u.options
	b := bounds{
		all: cache.Config{LabelSelector: o.DefaultLabelSelector, FieldSelector: o.DefaultFieldSelector,
			Transform: o.DefaultTransform, UnsafeDisableDeepCopy: o.DefaultUnsafeDisableDeepCopy},
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace,
	}
	defaults := b.all
	b.namespaces = maps.Clone(o.DefaultNamespaces)
	var of cache.Config
	for obj, by := range o.ByObject {
		if other, err := apiutil.GVKForObject(obj, u.scheme); err != nil || other != gvk {
			continue
		}
		of = cache.Config{LabelSelector: by.Label, FieldSelector: by.Field, Transform: by.Transform,
			UnsafeDisableDeepCopy: by.UnsafeDisableDeepCopy}
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
		b.namespaces[namespace] = sent(config)
	}
	b.all = sent(b.all)
	if !b.namespaced || len(b.namespaces) == 0 {
		b.namespaces = nil
	}
	u.known.Store(gvk, b)
	return b, nil
}

// sent returns the config with the selectors that a cache really uses. A cache only sends the text of its selectors,
// and the text of a selector that selects nothing selects everything.
func sent(config cache.Config) cache.Config {
	if s := config.LabelSelector; s != nil && s.String() == "" {
		config.LabelSelector = nil
	}
	if noFields(config.FieldSelector) {
		parsed, err := fields.ParseSelector(config.FieldSelector.String())
		if config.FieldSelector = nil; err == nil && !parsed.Empty() {
			config.FieldSelector = parsed
		}
	}
	return config
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
	if config.UnsafeDisableDeepCopy == nil {
		config.UnsafeDisableDeepCopy = from.UnsafeDisableDeepCopy
	}
	return config
}

// in returns the config of a namespace, or the error of a cache that is limited to other namespaces.
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

// endedPatience is the timeout of a request for a caller whose context has ended.
const endedPatience = 2 * time.Second

// answered asks the API server even if ctx has ended or ends meanwhile, since a cache answers in that case.
func answered(ctx context.Context, ask func(context.Context) error) error {
	if ctx.Err() == nil {
		if err := ask(ctx); err == nil || ctx.Err() == nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endedPatience)
	defer cancel()
	return ask(ctx)
}

// notFound returns the error of a cache without the object.
func notFound(gvk schema.GroupVersionKind, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
}

// canBe reports whether an object of that name may be in the API server.
func (b bounds) canBe(key client.ObjectKey) bool {
	if key.Name == "" || len(path.IsValidPathSegmentName(key.Name)) > 0 {
		return false
	}
	return !b.namespaced || key.Namespace != "" && len(path.IsValidPathSegmentName(key.Namespace)) == 0
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
	if !b.canBe(key) {
		return notFound(gvk, key.Name)
	}
	// Decode into a new object, since the caller's must not change without an answer, and decoding adds to an object.
	found := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	found.GetObjectKind().SetGroupVersionKind(gvk)
	o := client.GetOptions{}
	o.ApplyOptions(opts)
	o.Raw = nil
	err = answered(ctx, func(ctx context.Context) error {
		if err := u.Reader.Get(ctx, key, found, &o); err != nil {
			return err
		}
		selected, err := u.selected(ctx, gvk, config, found)
		if err == nil && !selected {
			err = notFound(gvk, key.Name)
		}
		return err
	})
	if err != nil {
		return err
	}
	transformed, err := transform(config.Transform, found)
	if err != nil {
		return err
	}
	setKind(transformed, gvk, config, o.UnsafeDisableDeepCopy)
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(transformed).Elem())
	return nil
}

// setKind sets the kind and version of an answer, as a cache does in the copies that it returns.
func setKind(obj runtime.Object, gvk schema.GroupVersionKind, config cache.Config, uncopied *bool) {
	if !ptr.Deref(config.UnsafeDisableDeepCopy, false) && !ptr.Deref(uncopied, false) {
		obj.GetObjectKind().SetGroupVersionKind(gvk)
	}
}

// selected reports whether the cache's selectors select an object. Only the API server can evaluate field selectors.
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
	if o.ApplyOptions(opts); o.Continue != "" {
		return errors.New("the option Continue is refused, as by a cache: with the option ctrlrt.Live, the API server " +
			"lists in parts")
	}
	o.Raw = nil
	if err := u.listAll(ctx, list, gvk, o, b); err != nil {
		return err
	}
	list.SetContinue("continue-not-supported") // as a cache does
	list.SetRemainingItemCount(nil)
	return nil
}

// listAll lists the objects that the caches of all namespaces, or of the options' namespace, would hold.
func (u *uncached) listAll(ctx context.Context, list client.ObjectList, gvk schema.GroupVersionKind,
	o client.ListOptions, b bounds,
) error {
	if b.namespaces == nil || o.Namespace != "" {
		config, err := b.in(o.Namespace, "list", o.Namespace)
		if err != nil {
			return err
		}
		if o.Namespace != "" && (!b.namespaced || len(path.IsValidPathSegmentName(o.Namespace)) > 0) {
			return meta.SetList(list, nil) // a cache has no object there
		}
		return u.listIn(ctx, list, gvk, o, config)
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
		if err := u.listIn(ctx, part, gvk, in, b.namespaces[namespace]); err != nil {
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

// listIn lists with the options of one cache. It sends no request for a selector that selects nothing.
func (u *uncached) listIn(ctx context.Context, list client.ObjectList, gvk schema.GroupVersionKind,
	o client.ListOptions, config cache.Config,
) error {
	byLabel, byField := andLabels(o.LabelSelector, config.LabelSelector), andFields(config.FieldSelector, o.FieldSelector)
	if noLabels(byLabel) || noFields(byField) {
		return meta.SetList(list, nil)
	}
	if hasUnnamedField(byField) {
		return apierrors.NewBadRequest(`a field selector without the name of a field: "="`)
	}
	o.LabelSelector, o.FieldSelector = byLabel, byField
	err := answered(ctx, func(ctx context.Context) error { return u.Reader.List(ctx, list, &o) })
	if err != nil {
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
		setKind(items[n], gvk, config, o.UnsafeDisableDeepCopy)
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
