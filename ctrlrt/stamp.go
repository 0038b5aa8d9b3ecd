package ctrlrt

import (
	"context"
	"encoding/json"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rota-dev/rota/labeller"
)

// stamp puts the labels on an object by which it is delivered, so that it arrives without a second write.
func (c *writingClient) stamp(obj client.Object) {
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return // the write says what is wrong
	}
	if stamps := c.mgr.rota.Share().Stamps(gvk.GroupKind(), obj); len(stamps) > 0 {
		set(obj, stamps)
	}
}

func set(obj metav1.Object, stamps map[string]string) {
	labels := maps.Clone(obj.GetLabels()) // it may be shared with what the user compares with
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, stamps)
	obj.SetLabels(labels)
}

// complete labels an object that was applied without the labels by which it is delivered, and returns what became of it; nil: it
// had them, or the labeller has to do it.
func (c *writingClient) complete(ctx context.Context, gvk schema.GroupVersionKind, obj metav1.Object) *metav1.PartialObjectMetadata {
	missing := c.mgr.rota.Share().Stamps(gvk.GroupKind(), obj)
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
