// Package cluster is the control plane that benchmarks run on, with Websites and their children in it.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	"github.com/rota-dev/rota/test/stage"
)

// apiserver is the name of the only API server.
const apiserver = "apiserver-0"

// Cluster is a control plane and the objects in it. Each run has its own.
type Cluster struct {
	*stage.Cluster
	http *http.Client // for what is no Kubernetes object
}

// Open starts a control plane with default settings, since the cost of its servers is measured too. name is the
// operator's namespace, and the prefix of that of the Websites. Further namespaces are created.
func Open(ctx context.Context, name string, namespaces ...string) (*Cluster, error) {
	s, err := stage.Open(ctx, stage.Options{Name: name})
	if err != nil {
		return nil, err
	}
	c := &Cluster{Cluster: s}
	if c.http, err = rest.HTTPClientFor(s.Config); err == nil {
		var objs []client.Object
		for _, n := range namespaces {
			objs = append(objs, stage.Namespace(n))
		}
		err = s.Create(ctx, objs...)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return c, nil
}

// Crash kills the API server, and starts it again. It returns when that serves Websites.
func (c *Cluster) Crash(ctx context.Context) error {
	if err := c.Plane.KillServer(apiserver); err != nil {
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

// Count returns the number of objects of kinds in the namespace for Websites.
func (c *Cluster) Count(ctx context.Context, kinds map[string]client.ObjectList) (map[string]int, error) {
	objects := map[string]int{}
	for kind, list := range kinds {
		gvk, err := c.Client.GroupVersionKindFor(list)
		if err != nil {
			return nil, err
		}
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(gvk)
		for first := true; first || page.Continue != ""; first = false {
			in, more := client.InNamespace(c.Sites), client.Continue(page.Continue)
			if err := c.Client.List(ctx, page, in, client.Limit(1000), more); err != nil {
				return nil, fmt.Errorf("count %s: %w", kind, err)
			}
			objects[kind] += len(page.Items)
		}
	}
	return objects, nil
}

// Empty removes all objects of kinds from a namespace, those of the first kind first: an operator that runs makes
// children again while their owners are there. It returns when there are none.
func (c *Cluster) Empty(ctx context.Context, namespace string, kinds ...client.ObjectList) error {
	for begun := time.Now(); ; {
		left, err := c.empty(ctx, namespace, kinds)
		switch {
		case err != nil || left == 0:
			return err
		case time.Since(begun) > time.Minute:
			return fmt.Errorf("namespace %s: %d objects are there again and again, although they are deleted", namespace, left)
		}
	}
}

// empty removes what is there, and returns how many objects there were.
func (c *Cluster) empty(ctx context.Context, namespace string, kinds []client.ObjectList) (n int, err error) {
	for _, list := range kinds {
		if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return n, err
		}
		var objs []client.Object
		err := meta.EachListItem(list, func(obj runtime.Object) error {
			objs = append(objs, obj.(client.Object))
			return nil
		})
		if err != nil {
			return n, err
		}
		n += len(objs)
		err = stage.Parallel(ctx, 0, len(objs), func(i int) error {
			return client.IgnoreNotFound(c.Client.Delete(ctx, objs[i]))
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
