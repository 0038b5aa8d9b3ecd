package footprint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/test/stage"
)

const (
	operatorNamespace = "footprint"
	sitesNamespace    = operatorNamespace + "-sites"
	// Where latencies are measured the operators work side by side, each in a namespace of its own.
	stockNamespace = operatorNamespace + "-stock"
	rotaNamespace  = operatorNamespace + "-rota"

	apiserver = "apiserver-0"
)

// cluster is a control plane and the objects in it. Each run has its own.
type cluster struct {
	*stage.Cluster
	http  *http.Client // for what is no Kubernetes object
	pages string       // the folder of the published pages
	sites int          // Websites in sitesNamespace: site-0 and so on
}

// openCluster starts a control plane with default settings, since the cost of its servers is measured too.
func openCluster(ctx context.Context, dir string) (*cluster, error) {
	s, err := stage.Open(ctx, stage.Options{Name: operatorNamespace})
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: s, pages: dir}
	if c.http, err = rest.HTTPClientFor(s.Config); err == nil {
		err = s.Create(ctx, stage.Namespace(stockNamespace), stage.Namespace(rotaNamespace))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return c, nil
}

// fresh restarts the API server, so that no case finds leftovers of another one in its memory.
func (c *cluster) fresh(ctx context.Context) error {
	if err := c.Plane.StopServer(apiserver); err != nil {
		return err
	}
	if err := c.Plane.StartServer(apiserver); err != nil {
		return err
	}
	// The server's cache of custom resources fills at the first request. The first replica must not pay for that.
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		cached := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}
		err := c.Client.List(ctx, &webv1.WebsiteList{}, client.Limit(1), cached)
		if err == nil || ctx.Err() != nil || time.Since(begun) > time.Minute {
			return err
		}
	}
}

// count returns the number of objects of the sharded kinds in sitesNamespace, and the mean size of some in JSON.
func (c *cluster) count(ctx context.Context) (objects, sizes map[string]int, err error) {
	objects, sizes = map[string]int{}, map[string]int{}
	for kind, list := range sharded() {
		gvk, err := c.Client.GroupVersionKindFor(list)
		if err != nil {
			return nil, nil, err
		}
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(gvk)
		for first := true; first || page.Continue != ""; first = false {
			in, more := client.InNamespace(sitesNamespace), client.Continue(page.Continue)
			if err := c.Client.List(ctx, page, in, client.Limit(1000), more); err != nil {
				return nil, nil, fmt.Errorf("count %s: %w", kind, err)
			}
			objects[kind] += len(page.Items)
		}
		some := &unstructured.UnstructuredList{}
		some.SetGroupVersionKind(gvk)
		if err := c.Client.List(ctx, some, client.InNamespace(sitesNamespace), client.Limit(100)); err != nil {
			return nil, nil, fmt.Errorf("list some %s: %w", kind, err)
		}
		for i := range some.Items {
			text, err := some.Items[i].MarshalJSON()
			if err != nil {
				return nil, nil, err
			}
			sizes[kind] += len(text)
		}
		sizes[kind] /= max(1, len(some.Items))
	}
	return objects, sizes, nil
}

// empty removes the Websites of a namespace and their children.
func (c *cluster) empty(ctx context.Context, namespace string) error {
	for _, list := range sharded() {
		if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		var objs []client.Object
		err := meta.EachListItem(list, func(obj runtime.Object) error {
			objs = append(objs, obj.(client.Object))
			return nil
		})
		if err != nil {
			return err
		}
		err = stage.Parallel(ctx, 0, len(objs), func(i int) error {
			return client.IgnoreNotFound(c.Client.Delete(ctx, objs[i]))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
