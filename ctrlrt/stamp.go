package ctrlrt

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/labeller"
)

// stamp puts the labels on an object by which it is delivered, so that it arrives without a second write. undo takes
// them back; nil: there are none.
func (c *writingClient) stamp(obj client.Object) (undo func()) {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return nil // the write says what is wrong
	}
	stamps := shareOf(c.mgr.rota).Stamps(gvk.GroupKind(), obj)
	if len(stamps) == 0 {
		return nil
	}
	before := obj.GetLabels()
	set(obj, stamps)
	return func() { obj.SetLabels(before) }
}

// stampApplied is stamp for an apply configuration: those of client-go's form, which embed the metadata's, and
// unstructured ones.
func (c *writingClient) stampApplied(obj runtime.ApplyConfiguration) (undo func()) {
	about := aboutApplied(obj)
	if about == nil {
		return nil
	}
	stamps := shareOf(c.mgr.rota).Stamps(about.GroupVersionKind().GroupKind(), about)
	if len(stamps) == 0 {
		return nil
	}
	if object, ok := obj.(metav1.Object); ok {
		before := object.GetLabels()
		set(object, stamps)
		return func() { object.SetLabels(before) }
	}
	labels := labelsOf(obj)
	if labels == nil {
		return nil // labelled after it is applied
	}
	before := *labels
	*labels = maps.Clone(before) // it may be shared
	if *labels == nil {
		*labels = map[string]string{}
	}
	maps.Copy(*labels, stamps)
	return func() { *labels = before }
}

// labelsOf returns the labels in an apply configuration of client-go's form; nil: it has another.
func labelsOf(obj runtime.ApplyConfiguration) *map[string]string {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	meta := v.Elem().FieldByName("ObjectMetaApplyConfiguration")
	if !meta.IsValid() || meta.Kind() != reflect.Pointer || meta.IsNil() {
		return nil
	}
	about, ok := meta.Interface().(*metav1ac.ObjectMetaApplyConfiguration)
	if !ok {
		return nil
	}
	return &about.Labels
}

// unstamped runs an apply that carries labels of ours, and after a conflict again without: it may be about one of them,
// which is none of the user's business, and the labeller puts the value right. What a conflict is about does not show:
// controller-runtime drops it.
func unstamped(undo func(), apply func() error) error {
	err := apply()
	if undo == nil || !apierrors.IsConflict(err) {
		return err
	}
	undo()
	return apply()
}

// hideStamps takes our labels out of what an object says of the fields that users' managers applied. They were put into
// what those applied, and who extracts that, to compare it with what it should be, would find a difference each time.
// Labels of ours that they applied themselves, as one does who copies a parent's to its children, are theirs.
func (c *writingClient) hideStamps(kind schema.GroupKind, obj metav1.Object) {
	entries := obj.GetManagedFields()
	hidden := false
	var ours []string
	for i, e := range entries {
		if e.Operation != metav1.ManagedFieldsOperationApply || e.FieldsV1 == nil {
			continue
		}
		text := e.FieldsV1.GetRawString()
		if !strings.Contains(text, stampField) {
			continue
		}
		if ours == nil {
			if ours = shareOf(c.mgr.rota).Labels(kind); len(ours) == 0 {
				return
			}
		}
		if text = withoutStamps(text, ours); text == "" {
			continue
		}
		if !hidden {
			entries, hidden = slices.Clone(entries), true
		}
		entries[i].FieldsV1 = metav1.NewFieldsV1(text)
	}
	if hidden {
		obj.SetManagedFields(entries)
	}
}

// stampField is how our labels, and others of the project, begin in the text of managed fields.
const stampField = `"f:` + names.Prefix + `/`

// withoutStamps returns the text of managed fields without some labels; "": it cannot be read.
func withoutStamps(text string, stamps []string) string {
	var root, about, labels map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &root) != nil || json.Unmarshal(root["f:metadata"], &about) != nil ||
		json.Unmarshal(about["f:labels"], &labels) != nil {
		return ""
	}
	for _, label := range stamps {
		delete(labels, "f:"+label)
	}
	put := func(into map[string]json.RawMessage, field string, fields map[string]json.RawMessage) {
		if into[field], _ = json.Marshal(fields); len(fields) == 0 {
			delete(into, field)
		}
	}
	put(about, "f:labels", labels)
	put(root, "f:metadata", about)
	out, err := json.Marshal(root)
	if err != nil {
		return ""
	}
	return string(out)
}

func set(obj metav1.Object, stamps map[string]string) {
	labels := maps.Clone(obj.GetLabels()) // it may be shared with what the user compares with
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, stamps)
	obj.SetLabels(labels)
}

// complete labels an object whose labels do not follow from what was applied: its controlling owner was set by another
// manager, say. It returns what became of it; nil: it had them, or the labeller has to do it.
func (c *writingClient) complete(ctx context.Context, gvk schema.GroupVersionKind, obj metav1.Object) *metav1.PartialObjectMetadata {
	missing := shareOf(c.mgr.rota).Stamps(gvk.GroupKind(), obj)
	maps.DeleteFunc(missing, func(label, value string) bool { return obj.GetLabels()[label] == value })
	if len(missing) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": missing}})
	if err != nil {
		return nil
	}
	about := &metav1.PartialObjectMetadata{}
	about.SetGroupVersionKind(gvk)
	about.SetNamespace(obj.GetNamespace())
	about.SetName(obj.GetName())
	if c.Client.Patch(ctx, about, client.RawPatch(types.MergePatchType, body), client.FieldOwner(labeller.FieldManager)) != nil {
		return nil
	}
	return about
}

// setApplied has an apply configuration show the labels and the version of an object.
func setApplied(obj runtime.ApplyConfiguration, labelled *metav1.PartialObjectMetadata) {
	if unstructured, ok := obj.(metav1.Object); ok {
		unstructured.SetLabels(labelled.Labels)
		unstructured.SetResourceVersion(labelled.ResourceVersion)
		return
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labelled.Labels, "resourceVersion": labelled.ResourceVersion}})
	if err == nil {
		_ = json.Unmarshal(text, obj) // adds to what is there; an answer of the API server was read into it before
	}
}

// aboutApplied returns the kind and the metadata of an apply configuration; nil where it has none.
func aboutApplied(obj runtime.ApplyConfiguration) *metav1.PartialObjectMetadata {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	about := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(text, about); err != nil || about.Kind == "" {
		return nil
	}
	return about
}
