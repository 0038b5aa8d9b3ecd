package zoo_test

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// value is the key under which items have their version.
const value = "value"

// itemName is not what Secrets of the item are called: the two are in slots of their own.
func itemName(i int) string { return fmt.Sprintf("item-%d", i) }

// newItem returns item i as a ConfigMap of the habit.
func newItem(u user, label string, i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: itemName(i), Labels: map[string]string{"zoo": label}},
		Data:       map[string]string{value: "1"},
	}
}

// newSecret returns a Secret that belongs to nobody.
func newSecret(namespace, label, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{"zoo": label},
	}}
}

// createItem, changeItem and removeItem are a user's actions on an item that is a ConfigMap.
func createItem(label string) func(user, int) error {
	return func(u user, i int) error { return u.Create(u.ctx, newItem(u, label, i)) }
}

func changeItem(u user, i, version int) error {
	return u.update(itemName(i), func(item *corev1.ConfigMap) { item.Data[value] = strconv.Itoa(version) })
}

func removeItem(u user, i int) error {
	return u.Delete(u.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: itemName(i)}})
}

// update changes a ConfigMap, whatever its operator writes meanwhile.
func (u user) update(name string, change func(*corev1.ConfigMap)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var item corev1.ConfigMap
		if err := u.Get(u.ctx, types.NamespacedName{Namespace: u.namespace, Name: name}, &item); err != nil {
			return err
		}
		change(&item)
		return u.Update(u.ctx, &item)
	})
}

// secrets returns all Secrets of the habit, by name.
func (u user) secrets(label string) (map[string]corev1.Secret, error) {
	var list corev1.SecretList
	if err := u.List(u.ctx, &list, client.InNamespace(u.namespace), client.MatchingLabels{"zoo": label}); err != nil {
		return nil, err
	}
	all := map[string]corev1.Secret{}
	for _, s := range list.Items {
		all[s.Name] = s
	}
	return all, nil
}

// eachItem returns the first fault that the check finds in an item; "": none.
func (u user) eachItem(items map[int]int, check func(item *corev1.ConfigMap, version string) string) (string, error) {
	var list corev1.ConfigMapList
	if err := u.List(u.ctx, &list, client.InNamespace(u.namespace)); err != nil {
		return "", err
	}
	byName := map[string]*corev1.ConfigMap{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	for i, version := range items {
		item := byName[itemName(i)]
		if item == nil {
			return fmt.Sprintf("%s is gone", itemName(i)), nil
		}
		if fault := check(item, strconv.Itoa(version)); fault != "" {
			return fmt.Sprintf("%s: %s", item.Name, fault), nil
		}
	}
	return "", nil
}

// annotate sets an annotation, if it is not so already.
func annotate(ctx context.Context, c client.Client, obj client.Object, key, text string) error {
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

// owned makes the ConfigMap the controller of an object.
func owned(owner *corev1.ConfigMap, obj client.Object, c client.Client) error {
	return controllerutil.SetControllerReference(owner, obj, c.Scheme())
}
