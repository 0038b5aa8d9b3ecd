package rotatest_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/rotatest"
)

// greeter writes a greeting into ConfigMaps of the namespace greetings.
type greeter struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (g *greeter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var cm corev1.ConfigMap
	if err := g.Get(ctx, req.NamespacedName, &cm); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cm.Data["greeting"] != "" {
		return reconcile.Result{}, nil
	}
	cm.Data = map[string]string{"greeting": "Hello, " + cm.Name}
	return reconcile.Result{}, g.Update(ctx, &cm)
}

// SetupWithManager is what the operator's main function calls. There are ConfigMaps that are not for it, such as those
// of kube-system.
func (g *greeter) SetupWithManager(mgr *ctrlrt.Manager) error {
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetNamespace() == "greetings" })
	return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}, builder.WithPredicates(ours)).Complete(g)
}

// runGreeter is the body of a test function. cfg is what Start of envtest's Environment returns.
func runGreeter(t *testing.T, cfg *rest.Config) {
	t.Helper()
	var objects []client.Object
	for i := range 6 {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "greetings", Name: fmt.Sprint("number-", i),
		}})
	}
	rotatest.Run(t, rotatest.Options{
		Config:  cfg,
		Setup:   func(mgr *ctrlrt.Manager) error { return (&greeter{mgr.GetClient()}).SetupWithManager(mgr) },
		Objects: objects,
		Change: func(ctx context.Context, c client.Client) error { // optional: what users do later
			return c.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "greetings", Name: "number-0",
			}})
		},
	})
}

func ExampleRun() {
	var cfg *rest.Config // made in TestMain

	_ = func(t *testing.T) { runGreeter(t, cfg) } // func TestGreeter(t *testing.T)
}
