package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/examples/notify/config"
	"github.com/rota-dev/rota/examples/notify/notice"
)

// Kind is a configured kind that the API server serves.
type Kind struct {
	config     *config.Kind
	gvk        schema.GroupVersionKind
	resource   schema.GroupVersionResource
	namespaced bool
}

// Kinds looks up all configured kinds. The error names those that cannot be followed.
func Kinds(c *config.Config, client discovery.DiscoveryInterface) ([]Kind, error) {
	var out []Kind
	for i := range c.Kinds {
		k := &c.Kinds[i]
		list, err := client.ServerResourcesForGroupVersion(k.APIVersion)
		if err != nil {
			return nil, fmt.Errorf("%s: ask the API server for it: %w: install it, or remove the entry", k, err)
		}
		at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
			return r.Kind == k.Kind && !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "watch")
		})
		if at < 0 {
			return nil, fmt.Errorf("%s: the API server has no such kind to watch: correct the spelling, or remove the entry", k)
		}
		r := list.APIResources[at]
		if !r.Namespaced && len(k.Namespaces) > 0 {
			return nil, fmt.Errorf("%s: it is not namespaced: remove its namespaces", k)
		}
		gvk := schema.FromAPIVersionAndKind(k.APIVersion, k.Kind)
		out = append(out, Kind{
			config: k, gvk: gvk, namespaced: r.Namespaced, resource: gvk.GroupVersion().WithResource(r.Name),
		})
	}
	return out, nil
}

// String names the kind, as in Deployment.apps.
func (k Kind) String() string { return k.gvk.GroupKind().String() }

// GroupKind is that of its objects.
func (k Kind) GroupKind() schema.GroupKind { return k.gvk.GroupKind() }

// Example returns an empty object of the kind.
func (k Kind) Example() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(k.gvk)
	return obj
}

// ListWatch lists and watches the objects. With several namespaces it does so in all, and follows drops the rest.
func (k Kind) ListWatch(client dynamic.Interface) cache.ListerWatcher {
	namespace := metav1.NamespaceAll
	if len(k.config.Namespaces) == 1 {
		namespace = k.config.Namespaces[0]
	}
	objects := client.Resource(k.resource).Namespace(namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, o)
		},
	}
}

// follows says whether objects in the namespace are told about.
func (k Kind) follows(namespace string) bool {
	return len(k.config.Namespaces) == 0 || slices.Contains(k.config.Namespaces, namespace)
}

// see returns what is to be known of an object.
func (k Kind) see(obj *unstructured.Unstructured) (*seen, error) {
	s := &seen{
		object: notice.Object{
			APIVersion: k.config.APIVersion, Kind: k.config.Kind,
			Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		},
		version: obj.GetResourceVersion(), created: obj.GetCreationTimestamp().Time,
	}
	var err error
	if k.config.Wants(notice.Changed) {
		if s.fingerprint, err = fingerprint(obj); err != nil {
			return nil, err
		}
	}
	if k.config.Wants(notice.Failing) {
		s.health, err = healthOf(obj)
	}
	return s, err
}

// fingerprint is a hash of what people set: all but metadata and status.
func fingerprint(obj *unstructured.Unstructured) (string, error) {
	fields := map[string]any{}
	for name, value := range obj.Object {
		if name != "metadata" && name != "status" {
			fields[name] = value
		}
	}
	text, err := json.Marshal(fields) // sorts keys
	if err != nil {
		return "", fmt.Errorf("hash %s %s/%s: %w", obj.GetKind(), obj.GetNamespace(), obj.GetName(), err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12]), nil
}
