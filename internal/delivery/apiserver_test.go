package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rota-dev/rota/internal/cli/serving"
	"github.com/rota-dev/rota/internal/delivery"
	"github.com/rota-dev/rota/internal/delivery/feed"
	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/internal/delivery/sieve"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/upstream/clientgo"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/controlplane"
	"github.com/rota-dev/rota/test/deliverytest"
	"github.com/rota-dev/rota/test/require"
)

const crds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.delivery.rota.dev}
spec:
  group: delivery.rota.dev
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: domains.delivery.rota.dev}
spec:
  group: delivery.rota.dev
  scope: Cluster
  names: {kind: Domain, plural: domains, singular: domain}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

var installed sync.Once

// form is a kind of the API server in one form of objects and one encoding.
type form struct {
	name     string
	resource schema.GroupVersionResource
	kind     string
	cluster  bool
	example  runtime.Object
	source   func(t testing.TB, config *rest.Config, f form) lister
}

// lister lists and watches a namespace.
type lister func(namespace string) (
	list func(context.Context, metav1.ListOptions) (runtime.Object, error),
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error))

func unstructuredOf(group, kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	return u
}

var (
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	widgets      = schema.GroupVersionResource{Group: "delivery.rota.dev", Version: "v1", Resource: "widgets"}
	domains      = schema.GroupVersionResource{Group: "delivery.rota.dev", Version: "v1", Resource: "domains"}

	forms = []form{
		{"TypedProtobuf", configMaps, "ConfigMap", false, &corev1.ConfigMap{}, typedConfigMaps},
		{"UnstructuredJSON", widgets, "Widget", false, unstructuredOf(widgets.Group, "Widget"), unstructuredObjects},
		{"Metadata", configMaps, "ConfigMap", false, &metav1.PartialObjectMetadata{}, metadataObjects},
		{"ClusterTypedProtobuf", clusterRoles, "ClusterRole", true, &rbacv1.ClusterRole{}, typedClusterRoles},
		{"ClusterUnstructuredJSON", domains, "Domain", true, unstructuredOf(domains.Group, "Domain"), unstructuredObjects},
	}
)

// TestAPIServer runs the suite on the real API server. With SLOW=1 (make check WHAT=slow) it does so for every form, and
// for Filter with client-go's WatchList both on and off; with -short, once for each kind of delivery.
func TestAPIServer(t *testing.T) {
	controlplane.Essential(t)
	config := controlplane.For(t).Config()
	slow := os.Getenv("SLOW") != ""
	run := func(name string, o deliverytest.Options, f form) {
		t.Run(name, func(t *testing.T) {
			controlplane.For(t)
			t.Parallel()
			o.Kind = func(t *testing.T) deliverytest.Kind { return kindOf(t, f) }
			deliverytest.Run(t, o)
		})
	}
	for i, f := range forms {
		if testing.Short() && i > 0 {
			break
		}
		watchList := []bool{f.name != "Metadata"}
		if slow {
			watchList = nil
		} else if f.name == "UnstructuredJSON" || f.name == "ClusterTypedProtobuf" {
			continue // others have their encoding and their scope
		}
		run(f.name, deliverytest.Options{WatchList: watchList}, f)
	}
	shards := sync.OnceValue(func() bool {
		core, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		has, err := serving.Shards(t.Context(), core.CoreV1().RESTClient(), "")
		require.NoError(t, err)
		info, err := core.ServerVersion()
		require.NoError(t, err)
		if v := version.MustParseGeneric(info.GitVersion); !has && v.AtLeast(version.MajorMinor(1, 36)) {
			t.Fatalf("Kubernetes %s has shard selectors, but this control plane ignores them", v)
		}
		return has
	})
	// What the others do is the same for all forms: lists for one, WatchList for the other.
	for i, f := range forms[:2] {
		for j, kind := range []sharding.Mode{sharding.SlotLabel, sharding.ShardSelector} {
			if slow || i == j {
				ignores := kind == sharding.ShardSelector && !shards()
				run(kind.String()+f.name, deliverytest.Options{Delivery: kind, WatchList: []bool{i == 0}, Ignores: ignores}, f)
			}
		}
	}
}

// asking are the tests that ask the API server: a dozen at a time, or they would wait for it and not it for them. Those
// in memory are more (main_test.go).
var (
	asking sync.Map
	dozen  = make(chan struct{}, 12)
)

func kindOf(t *testing.T, f form) deliverytest.Kind {
	cp := controlplane.For(t)
	if _, has := asking.LoadOrStore(t, true); !has {
		dozen <- struct{}{}
		t.Cleanup(func() { <-dozen })
	}
	installed.Do(func() {
		require.NoError(t, cp.InstallCRDs(t.Context(), []byte(crds)))
	})
	config := cp.Config()
	wrapped := rest.CopyConfig(config)
	wrapped.Wrap(func(next http.RoundTripper) http.RoundTripper { return informersTransport{next} })
	source := f.source(t, wrapped, f)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	namespaces := []string{""}
	if !f.cluster {
		namespaces = []string{controlplane.Namespace(t), controlplane.Namespace(t)}
	}
	return deliverytest.Kind{
		GroupKind: schema.GroupKind{Group: f.resource.Group, Kind: f.kind}, Example: f.example, Namespaces: namespaces,
		Client: &apiClient{form: f, client: client, namespaces: namespaces},
		ListWatch: func(namespace, selector string) cache.ListerWatcher {
			list, follow := source(namespace)
			return &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					o.LabelSelector = sharding.JoinSelectors(selector, o.LabelSelector)
					return list(ctx, o)
				},
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					o.LabelSelector = sharding.JoinSelectors(selector, o.LabelSelector)
					return follow(ctx, o)
				},
			}
		},
	}
}

// informersTransport does what the transport of package writes does for informers: it adds the shard selector where
// ListOptions have none, and removes the objects of other slots.
type informersTransport struct{ next http.RoundTripper }

func (a informersTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if selector := feed.ShardSelectorFrom(req.Context()); selector != "" {
		query := req.URL.Query()
		query.Set(clientgo.ShardSelectorParameter, selector)
		req = req.Clone(req.Context())
		req.URL.RawQuery = query.Encode()
	}
	res, err := a.next.RoundTrip(req)
	sieve.Apply(req, res)
	return res, err
}

func typedConfigMaps(t testing.TB, config *rest.Config, _ form) lister {
	client := protobufClient(t, config)
	return func(namespace string) (
		func(context.Context, metav1.ListOptions) (runtime.Object, error),
		func(context.Context, metav1.ListOptions) (watch.Interface, error),
	) {
		c := client.CoreV1().ConfigMaps(namespace)
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) }, c.Watch
	}
}

func typedClusterRoles(t testing.TB, config *rest.Config, _ form) lister {
	client := protobufClient(t, config)
	return func(string) (
		func(context.Context, metav1.ListOptions) (runtime.Object, error),
		func(context.Context, metav1.ListOptions) (watch.Interface, error),
	) {
		c := client.RbacV1().ClusterRoles()
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) }, c.Watch
	}
}

func protobufClient(t testing.TB, config *rest.Config) kubernetes.Interface {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func unstructuredObjects(t testing.TB, config *rest.Config, f form) lister {
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return func(namespace string) (
		func(context.Context, metav1.ListOptions) (runtime.Object, error),
		func(context.Context, metav1.ListOptions) (watch.Interface, error),
	) {
		c := client.Resource(f.resource).Namespace(namespace)
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) }, c.Watch
	}
}

func metadataObjects(t testing.TB, config *rest.Config, f form) lister {
	client, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	return func(namespace string) (
		func(context.Context, metav1.ListOptions) (runtime.Object, error),
		func(context.Context, metav1.ListOptions) (watch.Interface, error),
	) {
		c := client.Resource(f.resource).Namespace(namespace)
		return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) }, c.Watch
	}
}

// apiClient changes objects of any form.
type apiClient struct {
	form       form
	client     dynamic.Interface
	namespaces []string
	updates    atomic.Int64
}

func (c *apiClient) in(namespace string) dynamic.ResourceInterface {
	return c.client.Resource(c.form.resource).Namespace(namespace)
}

func (c *apiClient) object(u *unstructured.Unstructured, err error) (deliverytest.Object, error) {
	if err != nil {
		return deliverytest.Object{}, err
	}
	return deliverytest.Object{
		Key: types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}, UID: u.GetUID(),
		Version: u.GetResourceVersion(),
		Labels:  u.GetLabels(),
	}, nil
}

func (c *apiClient) Create(ctx context.Context, key types.NamespacedName,
	labels map[string]string,
) (deliverytest.Object, error) {
	u := unstructuredOf(c.form.resource.Group, c.form.kind)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	u.SetLabels(labels)
	return c.object(c.in(key.Namespace).Create(ctx, u, metav1.CreateOptions{}))
}

func (c *apiClient) Update(ctx context.Context, key types.NamespacedName) (deliverytest.Object, error) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"updates":"%d"}}}`, c.updates.Add(1))
	return c.object(c.in(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

func (c *apiClient) Relabel(ctx context.Context, key types.NamespacedName,
	labels map[string]string,
) (deliverytest.Object, error) {
	return c.patch(ctx, key, labels, map[string]any{})
}

func (c *apiClient) Adopt(ctx context.Context, key types.NamespacedName, owners []metav1.OwnerReference,
	labels map[string]string,
) (deliverytest.Object, error) {
	return c.patch(ctx, key, labels, map[string]any{"ownerReferences": owners})
}

func (c *apiClient) patch(ctx context.Context, key types.NamespacedName, labels map[string]string,
	metadata map[string]any,
) (deliverytest.Object, error) {
	values := map[string]any{}
	for name, value := range labels {
		if values[name] = value; value == "" {
			values[name] = nil
		}
	}
	metadata["labels"] = values
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return deliverytest.Object{}, err
	}
	return c.object(c.in(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{}))
}

// Delete learns the deletion's version from a watch.
func (c *apiClient) Delete(ctx context.Context, key types.NamespacedName) (deliverytest.Object, error) {
	in := c.in(key.Namespace)
	before, err := in.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return deliverytest.Object{}, err
	}
	w, err := in.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + key.Name,
		ResourceVersion: before.GetResourceVersion()})
	if err != nil {
		return deliverytest.Object{}, err
	}
	defer w.Stop()
	if err := in.Delete(ctx, key.Name, metav1.DeleteOptions{}); err != nil {
		return deliverytest.Object{}, err
	}
	for e := range w.ResultChan() {
		if u, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == watch.Deleted {
			return c.object(u, nil)
		}
	}
	return deliverytest.Object{}, fmt.Errorf("deletion of %v: the watch ended", key)
}

func (c *apiClient) List(ctx context.Context) ([]deliverytest.Object, string, error) {
	var out []deliverytest.Object
	version := ""
	for _, namespace := range c.namespaces {
		list, err := c.in(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, "", err
		}
		version = list.GetResourceVersion()
		for i := range list.Items {
			obj, err := c.object(&list.Items[i], nil)
			if err != nil {
				return nil, "", err
			}
			out = append(out, obj)
		}
	}
	return out, version, nil
}

const gizmos = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.delivery.rota.dev}
spec:
  group: delivery.rota.dev
  scope: Namespaced
  names: {kind: Gizmo, plural: gizmos, singular: gizmo}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestDeletedDefinition: a CustomResourceDefinition is deleted and created again under a running informer. Deletions
// are heard, slots move on meanwhile, and what is created afterwards is heard of.
func TestDeletedDefinition(t *testing.T) {
	cp := controlplane.For(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	must(cp.InstallCRDs(ctx, []byte(gizmos)))
	resource := schema.GroupVersionResource{Group: "delivery.rota.dev", Version: "v1", Resource: "gizmos"}
	kind := schema.GroupKind{Group: resource.Group, Kind: "Gizmo"}
	client, err := dynamic.NewForConfig(cp.Config())
	must(err)
	namespace := controlplane.Namespace(t)
	in := client.Resource(resource).Namespace(namespace)
	create := func(name string) {
		t.Helper()
		u := unstructuredOf(resource.Group, kind.Kind)
		u.SetName(name)
		_, err := in.Create(ctx, u, metav1.CreateOptions{})
		must(err)
	}
	share := delivery.New(delivery.Options{Slots: 2})
	must(share.Shard(kind))
	list, follow := unstructuredObjects(t, cp.Config(), form{resource: resource})("")
	inf := share.NewInformer(kind, &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: follow},
		unstructuredOf(resource.Group, kind.Kind), 0, cache.Indexers{})
	heard := make(chan string, 100)
	_, err = inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { heard <- "add " + obj.(metav1.Object).GetName() },
		DeleteFunc: func(obj any) { heard <- "delete " + obj.(metav1.Object).GetName() },
	})
	must(err)
	wait := func(want string) {
		t.Helper()
		select {
		case got := <-heard:
			if got != want {
				t.Fatalf("heard %q, want %q", got, want)
			}
		case <-ctx.Done():
			t.Fatalf("heard nothing, want %q", want)
		}
	}
	own := func(n slot.Slot) {
		t.Helper()
		var set slot.Set
		set.Add(n)
		share.Hold(set)
		must(share.Warm(ctx, set))
		must(share.Load(ctx, set, table.CauseAssigned, nil, false))
		share.Open(set)
	}
	var wg sync.WaitGroup
	wg.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	names := map[slot.Slot]string{}
	for i := 0; len(names) < 2; i++ {
		name := fmt.Sprintf("g%d", i)
		names[share.Slot(namespace, name, "")] = name
	}
	own(0)
	create(names[0])
	wait("add " + names[0])
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	must(definitions.Delete(ctx, "gizmos.delivery.rota.dev", metav1.DeleteOptions{}))
	wait("delete " + names[0])
	for { // the definition goes when its objects have gone
		if _, err := list(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
			break
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the definition is still served")
		}
	}
	own(1)
	must(cp.InstallCRDs(ctx, []byte(gizmos)))
	create(names[1])
	wait("add " + names[1])
	create(names[0])
	wait("add " + names[0])
}
