package habits

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func changeItem(u User, i, version int) error {
	return change(u.Context, u.Client, u.Namespace, i, version)
}

// newSecret returns a Secret without an owner.
func newSecret(namespace, label, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{Label: label},
	}}
}

func removeItem(u User, i int) error {
	return u.Delete(u.Context, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: u.Namespace, Name: itemName(i)}})
}

// with has users make an object beside each item and delete it with the item.
func (h Habit) with(of func(namespace string, i int) client.Object) Habit {
	h = h.withDefaults()
	create, remove := h.Create, h.Remove
	h.Create = func(u User, i int) error {
		if err := u.Create(u.Context, of(u.Namespace, i)); err != nil {
			return err
		}
		return create(u, i)
	}
	h.Remove = func(u User, i int) error {
		if err := remove(u, i); err != nil {
			return err
		}
		return u.Delete(u.Context, of(u.Namespace, i))
	}
	return h
}

// secrets returns all Secrets of the habit, by name.
func (u User) secrets(label string) (map[string]corev1.Secret, error) {
	var list corev1.SecretList
	if err := u.List(u.Context, &list, client.InNamespace(u.Namespace), client.MatchingLabels{Label: label}); err != nil {
		return nil, err
	}
	all := map[string]corev1.Secret{}
	for _, s := range list.Items {
		all[s.Name] = s
	}
	return all, nil
}

// noted is a Habit's Wrong: each item has an annotation.
func noted(key string, want func(item, version string) string) func(User, map[int]int) (string, error) {
	return func(u User, items map[int]int) (string, error) {
		var list corev1.ConfigMapList
		if err := u.List(u.Context, &list, client.InNamespace(u.Namespace)); err != nil {
			return "", err
		}
		got := map[string]string{}
		for i := range list.Items {
			got[list.Items[i].Name] = list.Items[i].Annotations[key]
		}
		for i, version := range items {
			if want := want(itemName(i), strconv.Itoa(version)); got[itemName(i)] != want {
				return fmt.Sprintf("%s has the annotation %s=%q, want %q", itemName(i), key, got[itemName(i)], want), nil
			}
		}
		return "", nil
	}
}

// version is what most habits note.
func version(_, version string) string { return version }
