package rotatest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// state holds the objects that the operator and the test wrote, without what differs between two runs. Its keys consist
// of the kind with its group, the namespace and the name.
type state struct {
	objects map[string]map[string]any
	// from holds the original objects.
	from map[string]*unstructured.Unstructured
	// places are the places that were written.
	places map[place]bool
	// failing holds the errors of objects whose last reconcile failed.
	failing map[object]string
	// remade holds the objects that were deleted and made again, up to now.
	remade map[place]remade
}

// snapshot reads the state. If want, the state with one member, is given, snapshot also looks for its objects: an
// object that existed before may need no write.
func (r *run) snapshot(ctx context.Context, want *state) (*state, error) {
	resources, objects := r.record.touched()
	places := map[place]bool{}
	for p := range objects {
		places[p] = true
	}
	wanted := maps.Clone(places)
	if want != nil {
		maps.Copy(wanted, want.places)
	}
	present, err := r.present(ctx, resources, wanted)
	if err != nil {
		return nil, err
	}
	ignored := func(obj *unstructured.Unstructured) bool { return slices.Contains(r.kit.o.Ignore, groupKind(obj)) }
	kept := slices.DeleteFunc(r.withoutGarbage(present), ignored) // ignored objects may own others
	r.noteStrangers(slices.DeleteFunc(slices.Clone(kept), func(obj *unstructured.Unstructured) bool {
		return r.kit.namespaces[obj.GetName()] != nil && isNamespace(obj)
	}))
	if kept, err = r.normalized(ctx, kept); err != nil {
		return nil, err
	}
	s := normalize(kept)
	s.places, s.failing, s.remade = places, r.reconciles.fails(), r.record.remade()
	return s, nil
}

// normalized returns copies of the objects after Options.Normalize.
func (r *run) normalized(ctx context.Context, all []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if r.kit.o.Normalize == nil {
		return all, nil
	}
	copies := make([]*unstructured.Unstructured, len(all))
	err := callback(ctx, "Options.Normalize", func() error {
		for i, obj := range all {
			copies[i] = obj.DeepCopy()
			r.kit.o.Normalize(copies[i])
		}
		return nil
	})
	return copies, err
}

// present returns the objects that exist. If it returns an error, the result is incomplete.
func (r *run) present(ctx context.Context, resources []schema.GroupVersionResource, objects map[place]bool,
) (all []*unstructured.Unstructured, err error) {
	var errs []error
	for _, resource := range resources {
		kind, err := r.kit.mapper.KindFor(resource)
		if err != nil {
			if meta.IsNoMatchError(err) {
				continue // a review, or another resource that cannot be read
			}
			errs = append(errs, fmt.Errorf("ask for the kind of %s: %w", resource.Resource, err))
			continue
		}
		list, err := r.kit.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsMethodNotSupported(err), apierrors.IsNotFound(err):
			continue
		case err != nil:
			errs = append(errs, fmt.Errorf("list %s: %w", resource.Resource, err))
			continue
		}
		for i := range list.Items {
			obj := &list.Items[i]
			if objects[place{resource.GroupResource(), client.ObjectKeyFromObject(obj)}] {
				obj.SetGroupVersionKind(kind)
				all = append(all, obj)
			}
		}
	}
	return all, errors.Join(errs...)
}

// withoutGarbage leaves out objects whose owners are all gone. An API server alone has no garbage collector.
func (r *run) withoutGarbage(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	written := r.record.uids()
	for {
		there := map[types.UID]bool{}
		for _, obj := range all {
			there[obj.GetUID()] = true
		}
		kept := slices.DeleteFunc(slices.Clone(all), func(obj *unstructured.Unstructured) bool {
			owners := obj.GetOwnerReferences()
			return len(owners) > 0 && !slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool {
				return there[o.UID] || !written[o.UID]
			})
		})
		if len(kept) == len(all) {
			return kept
		}
		all = kept
	}
}

// undeleted describes an object that the test deleted and that still exists.
func (r *run) undeleted(ctx context.Context) (string, error) {
	_, objects := r.record.touched()
	for p, w := range objects {
		if w.by != "" || w.verb != "delete" {
			continue
		}
		resource := p.WithVersion(w.Resource.Version)
		obj, err := r.kit.dynamic.Resource(resource).Namespace(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return "", fmt.Errorf("look for %s %s: %w", p.Resource, p.ObjectKey, err)
		case isNamespace(obj) && !r.kit.controllers && len(obj.GetFinalizers()) == 0: // only a controller finalizes it
		case obj.GetDeletionTimestamp() != nil:
			return fmt.Sprintf("%s was deleted, and is still there, with the finalizers %v",
				describe(obj.GetKind(), p.ObjectKey), obj.GetFinalizers()), nil
		}
	}
	return "", nil
}

// compare describes how a state differs from the state with one member, or returns "".
func (r *run) compare(want, got *state) string {
	short := shortNames(want, got)
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(want.objects)) {
		have, ok := got.objects[key]
		if !ok {
			parts = append(parts, short[key]+" is missing")
		} else if diff := difference(want.objects[key], have); diff != "" {
			parts = append(parts, short[key]+" differs (-one member +two members):\n"+indent(diff))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got.objects)) {
		if _, ok := want.objects[key]; ok {
			continue
		}
		obj := got.from[key]
		text := short[key] + " is one too many"
		if w, ok := r.record.creation(obj.GetUID()); ok {
			text += fmt.Sprintf(": its name is %s, and it came by %s", obj.GetName(), w)
		}
		parts = append(parts, text)
	}
	parts = append(parts, r.kit.remadeMore(want, got)...)
	const most = 10
	if n := len(parts); n > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more objects", n-most))
	}
	return strings.Join(parts, "\n")
}

// shortNames returns the keys of states without groups, where they are unambiguous.
func shortNames(states ...*state) map[string]string {
	short, keys := map[string]string{}, map[string]map[string]bool{}
	for _, s := range states {
		for key := range s.objects {
			kind, name, _ := strings.Cut(key, " ")
			short[key] = schema.ParseGroupKind(kind).Kind + " " + name
			if keys[short[key]] == nil {
				keys[short[key]] = map[string]bool{}
			}
			keys[short[key]][key] = true
		}
	}
	for key, name := range short {
		if len(keys[name]) > 1 {
			short[key] = key
		}
	}
	return short
}

// byName orders objects by kind, namespace and name.
func byName(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(groupKind(a).String(), groupKind(b).String()),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

func groupKind(obj *unstructured.Unstructured) schema.GroupKind {
	return obj.GroupVersionKind().GroupKind()
}
