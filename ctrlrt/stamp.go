package ctrlrt

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota/internal/labeller"
	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
)

// stamp adds the labels by which an object is delivered, so that they need no second write. undo removes them. It is
// nil if none were added.
func (c *writingClient) stamp(obj client.Object) (undo func()) {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return nil // the write returns the error
	}
	stamps := shareOf(c.mgr.rota).Stamps(gvk.GroupKind(), obj)
	if len(stamps) == 0 {
		return nil
	}
	before := obj.GetLabels()
	set(obj, stamps)
	return func() { obj.SetLabels(before) }
}

// stampApplied is stamp for an apply configuration, either a generated one, which embeds its metadata, or an
// unstructured one.
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
	meta := clientgo.AppliedMeta(obj)
	if meta == nil {
		return nil // labelled after it is applied
	}
	before := meta.Labels
	meta.Labels = maps.Clone(before) // the map may be shared
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	maps.Copy(meta.Labels, stamps)
	return func() { meta.Labels = before }
}

// unstamped runs an apply that carries Rota's labels, and runs it again without them after a conflict. The conflict may
// be about one of these labels. The user must not get that error, and the labeller corrects the value.
// controller-runtime drops the cause of a conflict, so any conflict is treated this way.
func unstamped(undo func(), apply func() error) error {
	err := apply()
	if undo == nil || !apierrors.IsConflict(err) {
		return err
	}
	undo()
	return apply()
}

// hideStamps removes Rota's labels from the managed fields of users' field managers, to whose applies the labels were
// added. Otherwise a program that extracts its applied fields and compares them with the desired ones would always find
// a difference. Only the labels of the object's kind are hidden. Other labels of Rota, for instance copied from a
// parent, were applied by the program.
func (c *writingClient) hideStamps(kind schema.GroupKind, obj metav1.Object) {
	entries := obj.GetManagedFields()
	hidden := false
	var ours []string
	for i, e := range entries {
		if e.Operation != metav1.ManagedFieldsOperationApply || e.FieldsV1 == nil {
			continue
		}
		text := e.FieldsV1.String()
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
		entries[i].FieldsV1 = &metav1.FieldsV1{}
		if err := entries[i].FieldsV1.UnmarshalJSON([]byte(text)); err != nil {
			return
		}
	}
	if hidden {
		obj.SetManagedFields(entries)
	}
}

// stampField is the prefix of Rota's labels in the text of managed fields.
const stampField = `"f:` + names.Prefix + `/`

// withoutStamps returns the text of managed fields without some labels, or "" if it cannot be parsed.
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
	labels := maps.Clone(obj.GetLabels()) // the user may compare the object with one that shares the map
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, stamps)
	obj.SetLabels(labels)
}

// complete adds labels that could not be computed from the applied fields, for instance because another manager set the
// controlling owner. It returns the labelled object, or nil if no label was missing or the labeller must add it.
func (c *writingClient) complete(ctx context.Context, gvk schema.GroupVersionKind,
	obj metav1.Object,
) *metav1.PartialObjectMetadata {
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
	if c.Client.Patch(ctx, about, client.RawPatch(types.MergePatchType, body),
		client.FieldOwner(labeller.FieldManager)) != nil {
		return nil
	}
	return about
}

// setApplied copies the labels and version of an object to an apply configuration.
func setApplied(obj runtime.ApplyConfiguration, labelled *metav1.PartialObjectMetadata) {
	if unstructured, ok := obj.(metav1.Object); ok {
		unstructured.SetLabels(labelled.Labels)
		unstructured.SetResourceVersion(labelled.ResourceVersion)
		return
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labelled.Labels,
		"resourceVersion": labelled.ResourceVersion}})
	if err == nil {
		_ = json.Unmarshal(text, obj) // adds to the API server's answer, which was decoded into obj before
	}
}

// aboutApplied returns the kind and metadata of an apply configuration, or nil if it has none.
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
