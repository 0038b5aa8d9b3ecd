package footprint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/examples/website/config"
	"github.com/rota-dev/rota/internal/controlplane"
)

const (
	operatorNamespace = "footprint"
	sitesNamespace    = "footprint-sites"
	// Where latencies are measured the operators work side by side, each in a namespace of its own.
	stockNamespace = "footprint-stock"
	rotaNamespace  = "footprint-rota"

	apiserver = "apiserver-0"
)

// cluster is a control plane of its own, and what was put there.
type cluster struct {
	plane  *controlplane.ControlPlane
	config *rest.Config
	client client.Client
	http   *http.Client // for what is no Kubernetes object
	pages  string       // the folder of the published pages
	sites  int          // Websites in sitesNamespace: site-0 and so on
}

// openCluster starts a control plane. Close it also after an error.
func openCluster(ctx context.Context, dir string) (*cluster, error) {
	c := &cluster{pages: dir}
	var err error
	if c.plane, err = controlplane.Start(ctx, controlplane.Options{}); err != nil {
		return c, err
	}
	c.config = c.plane.Config()
	c.config.UserAgent = "rota-footprint"
	if c.http, err = rest.HTTPClientFor(c.config); err != nil {
		return c, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), webv1.AddToScheme(scheme)); err != nil {
		return c, err
	}
	if c.client, err = client.New(c.config, client.Options{Scheme: scheme, HTTPClient: c.http}); err != nil {
		return c, err
	}
	if err := controlplane.InstallCRDs(ctx, c.config, config.CRD); err != nil {
		return c, err
	}
	for _, name := range []string{operatorNamespace, sitesNamespace, stockNamespace, rotaNamespace} {
		if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *cluster) close() error {
	if c.plane == nil {
		return nil
	}
	return c.plane.Stop()
}

// fresh restarts the API server, so that each case finds it as the others do: with nothing left over in its memory.
func (c *cluster) fresh(ctx context.Context) error {
	if err := c.plane.StopServer(apiserver); err != nil {
		return err
	}
	if err := c.plane.StartServer(apiserver); err != nil {
		return err
	}
	// Its cache of custom resources fills at the first request, so until then it would count for the first replica.
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := c.client.List(ctx, &webv1.WebsiteList{}, client.Limit(1), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
		if err == nil || ctx.Err() != nil || time.Since(begun) > time.Minute {
			return err
		}
	}
}

// count returns the number of objects of the sharded kinds in sitesNamespace, and the mean size of some in JSON.
func (c *cluster) count(ctx context.Context) (objects, sizes map[string]int, err error) {
	objects, sizes = map[string]int{}, map[string]int{}
	for kind, list := range sharded() {
		gvk, err := c.client.GroupVersionKindFor(list)
		if err != nil {
			return nil, nil, err
		}
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(gvk)
		for first := true; first || page.Continue != ""; first = false {
			if err := c.client.List(ctx, page, client.InNamespace(sitesNamespace), client.Limit(1000), client.Continue(page.Continue)); err != nil {
				return nil, nil, fmt.Errorf("count %s: %w", kind, err)
			}
			objects[kind] += len(page.Items)
		}
		some := &unstructured.UnstructuredList{}
		some.SetGroupVersionKind(gvk)
		if err := c.client.List(ctx, some, client.InNamespace(sitesNamespace), client.Limit(100)); err != nil {
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

// empty removes the Websites of a namespace, with what was made of them.
func (c *cluster) empty(ctx context.Context, namespace string) error {
	for _, list := range sharded() {
		page := list
		if err := c.client.List(ctx, page, client.InNamespace(namespace)); err != nil {
			return err
		}
		if err := c.deleteAll(ctx, page); err != nil {
			return err
		}
	}
	return nil
}
