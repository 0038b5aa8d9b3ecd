package habits

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Label is on all objects of habits. Its value is the habit's.
	Label = "habits.example.com/habit"
	// value is the key under which items have their version.
	value = "value"
)

// itemName is not what Secrets of the item are called: the two are in slots of their own.
func itemName(i int) string { return fmt.Sprintf("item-%d", i) }

// newItem returns item i as a ConfigMap of the habit.
func newItem(namespace, label string, i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: itemName(i), Labels: map[string]string{Label: label}},
		Data:       map[string]string{value: "1"},
	}
}

func change(ctx context.Context, c client.Client, namespace string, i, version int) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { // whatever the operator writes meanwhile
		var item corev1.ConfigMap
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: itemName(i)}, &item); err != nil {
			return err
		}
		item.Data[value] = strconv.Itoa(version)
		return c.Update(ctx, &item)
	})
}

// owned returns the object with the ConfigMap as its controller.
func owned(by *corev1.ConfigMap, obj *corev1.Secret) *corev1.Secret {
	obj.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: by.Name, UID: by.UID, Controller: ptr.To(true),
	}}
	return obj
}

// Child returns a Secret of the ConfigMap. Its name is generated if name is "".
func Child(of *corev1.ConfigMap, name string) *corev1.Secret {
	made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: name}}
	if name == "" {
		made.GenerateName = of.Name + "-"
	}
	return owned(of, made)
}

// Items returns n ConfigMaps of a namespace, for an Operator.
func Items(namespace string, n int) (all []client.Object) {
	for i := range n {
		item := newItem(namespace, "item", i)
		item.Data[value] = strconv.Itoa(i)
		all = append(all, item)
	}
	return all
}

// Edit changes the value of some of the Items.
func Edit(namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		for i := range 3 {
			if err := change(ctx, c, namespace, i, 1000); err != nil {
				return err
			}
		}
		return nil
	}
}

// Note sets an annotation, if it is not so already.
func Note(ctx context.Context, c client.Client, obj client.Object, key, text string) error {
	if obj.GetAnnotations()[key] == text {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	annotations := map[string]string{key: text}
	for k, v := range obj.GetAnnotations() {
		if k != key {
			annotations[k] = v
		}
	}
	obj.SetAnnotations(annotations)
	return client.IgnoreNotFound(c.Patch(ctx, obj, client.MergeFrom(before)))
}
