package ctrlrt

import (
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
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

// stampApplied is stamp for an apply configuration.
func (c *writingClient) stampApplied(obj runtime.ApplyConfiguration) error {
	about := aboutApplied(obj)
	if about == nil {
		return nil // the write says what is wrong
	}
	stamps := c.mgr.rota.Share().Stamps(about.GroupVersionKind().GroupKind(), about)
	if len(stamps) == 0 {
		return nil
	}
	if unstructured, ok := obj.(metav1.Object); ok {
		set(unstructured, stamps)
		return nil
	}
	// Decoding adds to what is there.
	labels, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": stamps}})
	if err == nil {
		err = json.Unmarshal(labels, obj)
	}
	if err != nil {
		return fmt.Errorf("label %s %s: %w", about.Kind, about.Name, err)
	}
	return nil
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
