package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Kind is a kind of namespaced objects that is watched with a dynamic client.
type Kind struct{ schema.GroupVersionKind }

// ParseKind reads KIND.VERSION.GROUP, such as Deployment.v1.apps.
func ParseKind(text string) (Kind, error) {
	gvk, _ := schema.ParseKindArg(text)
	if gvk == nil {
		return Kind{}, fmt.Errorf("kind %q: must be KIND.VERSION.GROUP, such as Deployment.v1.apps", text)
	}
	return Kind{*gvk}, nil
}

// ListWatch lists and watches the objects of all namespaces.
func (k Kind) ListWatch(client dynamic.Interface) cache.ListerWatcher {
	resource, _ := meta.UnsafeGuessKindToResource(k.GroupVersionKind)
	objects := client.Resource(resource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, o)
		},
		WatchFuncWithContext: objects.Watch,
	}
}

// Example is an empty object of the kind.
func (k Kind) Example() runtime.Object {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(k.GroupVersionKind)
	return obj
}
