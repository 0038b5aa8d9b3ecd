// Package habits keeps operators as people write them, each with a habit that sharding has to bear or brings to light.
// They are written from the documentation and behavior of operators that are in use; none of their code is here.
//
// Mistakes returns operators that sharding breaks, with the fault of rotatest that shows each. Some others, such as
// Restless, are for what rotatest reports besides.
//
// The operators that sharding must not break are in the package's tests: watches added at run time, names that are
// empty at first, finalizers of children whose owner is gone, selectors that are unset, expectations, polls, batchers,
// one object that sums up all others. rotatest runs each of them with one member and with two under its faults. Its
// objects have to be the same, and what it makes of them.
package habits

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
)

// Reconcile reconciles a ConfigMap that is there.
type Reconcile func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error)

func (r Reconcile) of(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		var item corev1.ConfigMap
		if err := c.Get(ctx, req.NamespacedName, &item); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		return r(ctx, &item)
	}
}

// Operator has one controller, of ConfigMaps with a Label, which own Secrets.
type Operator func(c client.Client) Reconcile

// Setup is what the operator's main function calls.
func (o Operator) Setup(mgr *ctrlrt.Manager) error {
	return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}, labeled).Owns(&corev1.Secret{}).
		Complete(o.reconciler(mgr.GetClient()))
}

// SetupStock is Setup with controller-runtime's own builder.
func (o Operator) SetupStock(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}, labeled).Owns(&corev1.Secret{}).
		Complete(o.reconciler(mgr.GetClient()))
}

// reconciler leaves items alone that are being deleted.
func (o Operator) reconciler(c client.Client) reconcile.Func {
	r := o(c)
	return Reconcile(func(ctx context.Context, item *corev1.ConfigMap) (ctrl.Result, error) {
		if item.DeletionTimestamp != nil {
			return ctrl.Result{}, nil
		}
		return r(ctx, item)
	}).of(c)
}

// labeled selects the objects of any habit.
var labeled = builder.WithPredicates(predicate.NewPredicateFuncs(func(obj client.Object) bool {
	return obj.GetLabels()[Label] != ""
}))
