package rotatest

import (
	"cmp"
	"context"
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

// state has the objects that the operator and the test wrote, without what differs between two runs. The names are for
// people.
type state struct {
	objects map[string]map[string]any
	// from has the objects as they are.
	from map[string]*unstructured.Unstructured
}

// snapshot reads the state.
func (r *run) snapshot(ctx context.Context) (*state, error) {
	present, err := r.present(ctx)
	if err != nil {
		return nil, err
	}
	r.noteStrangers(present)
	kept := r.withoutGarbage(present)
	for i, obj := range kept {
		if r.kit.o.Normalize == nil {
			break
		}
		kept[i] = obj.DeepCopy()
		r.kit.o.Normalize(kept[i])
	}
	return normalize(kept), nil
}

// present returns the objects that were written in this run and are there.
func (r *run) present(ctx context.Context) (all []*unstructured.Unstructured, err error) {
	resources, objects := r.record.touched()
	for _, resource := range resources {
		kind, err := r.kit.mapper.KindFor(resource)
		if err != nil {
			if meta.IsNoMatchError(err) {
				continue // a review, or what else cannot be read
			}
			return nil, fmt.Errorf("ask for the kind of %s: %w", resource.Resource, err)
		}
		if slices.Contains(r.kit.o.Ignore, kind.GroupKind()) {
			continue
		}
		list, err := r.kit.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
		switch {
		case apierrors.IsMethodNotSupported(err), apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for i := range list.Items {
			obj := &list.Items[i]
			if _, ok := objects[place{resource.GroupResource(), client.ObjectKeyFromObject(obj)}]; ok {
				obj.SetGroupVersionKind(kind)
				all = append(all, obj)
			}
		}
	}
	return all, nil
}

// withoutGarbage leaves out objects whose owners are all gone, as a garbage collector does. An API server has none.
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

// undeleted says which of the objects that the test deleted are still there.
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
		case obj.GetDeletionTimestamp() != nil:
			return fmt.Sprintf("%s was deleted, and is still there, with the finalizers %v",
				describe(obj.GetKind(), p.ObjectKey), obj.GetFinalizers()), nil
		}
	}
	return "", nil
}

// compare says how a state differs from the one with one member, "" if it does not.
func (r *run) compare(want, got *state) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(want.objects)) {
		have, ok := got.objects[name]
		if !ok {
			parts = append(parts, name+" is missing")
		} else if diff := difference(want.objects[name], have); diff != "" {
			parts = append(parts, name+" differs (-one member +two members):\n"+indent(diff))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got.objects)) {
		if _, ok := want.objects[name]; ok {
			continue
		}
		obj := got.from[name]
		text := name + " is one too many"
		if w, ok := r.record.creation(obj.GetUID()); ok {
			text += fmt.Sprintf(": its name is %s, and it came by %s", obj.GetName(), w)
		}
		parts = append(parts, text)
	}
	const most = 10
	if n := len(parts); n > most {
		parts = append(parts[:most], fmt.Sprintf("and %d more objects", n-most))
	}
	return strings.Join(parts, "\n")
}

// byName orders objects by kind, namespace and name.
func byName(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(groupKind(a).String(), groupKind(b).String()),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

func groupKind(obj *unstructured.Unstructured) schema.GroupKind {
	return obj.GroupVersionKind().GroupKind()
}
