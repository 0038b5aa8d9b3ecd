package bench

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/bench/cluster"
	"github.com/rota-dev/rota/test/stage"
)

// changeKey is the annotation with the number of a Secret's change. Its ConfigMap gets it too.
const changeKey = "bench.rota.dev/change"

// pairs are Secrets, each with a ConfigMap of the same name that its controller makes.
type pairs struct{}

func (pairs) kinds() []client.Object { return []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}} }

func (pairs) secret(at client.ObjectKey, n int64) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: at.Namespace, Name: at.Name, Annotations: map[string]string{changeKey: strconv.FormatInt(n, 10)},
		},
		Data: map[string][]byte{"data": []byte(cluster.Letters(at.Name, 300))},
	}
}

// fill makes the ConfigMaps too, as the operator would. All have the labels that sharders would give them first: there
// are so many that this would take longer than what is measured.
func (p pairs) fill(ctx context.Context, r *runner, n int) error {
	c := r.cluster.Client
	place := r.placing()
	return stage.Parallel(ctx, 0, n, func(i int) error {
		s := p.secret(client.ObjectKey{Namespace: r.cluster.Sites, Name: cluster.SiteName(i)}, 0)
		if err := cluster.Stamp(c.Scheme(), s); err != nil {
			return err
		}
		place(s, false)
		if err := c.Create(ctx, s); err != nil {
			return err
		}
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
		if err := follow(c, s, m); err != nil {
			return err
		}
		if err := cluster.Stamp(c.Scheme(), m); err != nil {
			return err
		}
		place(m, true)
		return c.Create(ctx, m)
	})
}

// follow has a ConfigMap be as its Secret wants it.
func follow(c client.Client, s *corev1.Secret, m *corev1.ConfigMap) error {
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, changeKey, s.Annotations[changeKey])
	m.BinaryData = s.Data
	return controllerutil.SetControllerReference(s, m, c.Scheme())
}

func (pairs) controllers(mgr manager.Manager, _ *operatorConfig) []controlled {
	c := mgr.GetClient()
	r := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		s := &corev1.Secret{}
		if err := c.Get(ctx, req.NamespacedName, s); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if s.Annotations[changeKey] == "" {
			return reconcile.Result{}, nil // it is somebody else's
		}
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
		_, err := controllerutil.CreateOrPatch(ctx, c, m, func() error { return follow(c, s, m) })
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("make the ConfigMap of %s: %w", req, err)
		}
		return reconcile.Result{}, nil
	})
	return []controlled{{stage.Controller{
		For: &corev1.Secret{}, Owns: []client.Object{&corev1.ConfigMap{}}, Workers: stage.Concurrency,
	}, r}}
}

func (p pairs) create(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (int64, error) {
	return n, c.Create(ctx, p.secret(at, n))
}

func (pairs) change(ctx context.Context, c client.Client, at client.ObjectKey, n int64) (int64, error) {
	obj := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}}
	return n, annotate(ctx, c, obj, changeKey, strconv.FormatInt(n, 10))
}

func (pairs) shows() client.Object { return &corev1.ConfigMap{} }

func (pairs) shown(obj client.Object) int64 {
	return numberIn(obj, changeKey)
}
