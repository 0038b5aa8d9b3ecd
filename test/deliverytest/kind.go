package deliverytest

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Object is what the suite knows of an object. Version is that of its latest change; of a deletion, where it is one.
type Object struct {
	Key     types.NamespacedName
	UID     types.UID
	Version string
	Labels  map[string]string
}

// meta is what an API server's answer to a write that led to a version tells of the object.
func (o Object) meta(version string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: o.Key.Namespace, Name: o.Key.Name, UID: o.UID, ResourceVersion: version}
}

// Client changes the objects of a kind.
type Client interface {
	Create(ctx context.Context, key types.NamespacedName, labels map[string]string) (Object, error)
	Update(ctx context.Context, key types.NamespacedName) (Object, error)
	// Relabel sets labels, and removes those whose value is empty.
	Relabel(ctx context.Context, key types.NamespacedName, labels map[string]string) (Object, error)
	// Adopt sets owner references, in place of all that there are, and labels, in one write. Labels not named stay.
	Adopt(ctx context.Context, key types.NamespacedName, owners []metav1.OwnerReference,
		labels map[string]string) (Object, error)
	// Delete returns the object with the version of its deletion, or an empty one where the server does not tell it.
	Delete(ctx context.Context, key types.NamespacedName) (Object, error)
	// List lists consistently, and returns the list's version.
	List(ctx context.Context) ([]Object, string, error)
}

// Kind is a kind to run the suite on, in one form.
type Kind struct {
	GroupKind schema.GroupKind
	// Example is an object of the form: typed, unstructured or metadata only.
	Example runtime.Object
	// Namespaces are two that exist and that nobody else uses, or one empty string where the kind is cluster-scoped.
	Namespaces []string
	Client     Client
	// ListWatch returns a ListerWatcher of a namespace, all where it is empty, and a label selector, which it
	// joins with that of the options.
	ListWatch func(namespace, selector string) cache.ListerWatcher
	// Compact makes the server answer 410 Gone to watches from versions up to now. nil: it cannot be made to.
	Compact func()
}

// OfMemory returns the kind of a server in memory.
func OfMemory(m *Memory) Kind {
	return Kind{
		GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Example: &corev1.ConfigMap{}, Namespaces: []string{"a", "b"},
		Client: m, ListWatch: m.ListWatch, Compact: m.Compact,
	}
}
