package bench

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rota-dev/rota/bench/cluster"
	webv1 "github.com/rota-dev/rota/examples/website/api/v1"
	website "github.com/rota-dev/rota/examples/website/controller"
	"github.com/rota-dev/rota/test/stage"
)

// websites are the example's.
type websites struct{}

func (websites) kinds() []client.Object {
	return []client.Object{&webv1.Website{}, &appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}}
}

// fill has an operator create the children.
func (websites) fill(ctx context.Context, r *runner, n int) (err error) {
	if err := r.cluster.Fill(ctx, n); err != nil {
		return err
	}
	s, _ := find("leader")
	c := &crew{runner: r, strategy: s, name: "seed", stamp: true, size: 1}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	if err := c.open(ctx); err != nil {
		return err
	}
	if _, err := c.begin(ctx, c.size); err != nil {
		return err
	}
	return c.quieten(ctx)
}

func (websites) controllers(mgr manager.Manager, c *operatorConfig) []controlled {
	sites, r := stage.Websites(mgr, website.Pages{Dir: c.Pages})
	return []controlled{{sites, r}}
}

func (websites) create(ctx context.Context, c client.Client, at client.ObjectKey, _ int64) (int64, error) {
	obj := cluster.Site(at.Namespace, at.Name)
	err := c.Create(ctx, obj)
	return obj.Generation, err
}

func (websites) change(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (int64, error) {
	obj := &webv1.Website{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	patch := fmt.Appendf(nil, `{"spec":{"title":"The website %s, change %d"}}`, at.Name, n)
	err := c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
	return obj.Generation, err
}

func (websites) shows() client.Object { return &webv1.Website{} }

func (websites) shown(obj client.Object) int64 { return obj.(*webv1.Website).Status.ObservedGeneration }
