// Package twice builds one controller with either package, as an operator does that can run without Rota, too.
package twice

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
)

type reconciler struct{ client.Client }

func sharded(mgr *ctrlrt.Manager, r *reconciler) error {
	return ctrlrt.NewControllerManagedBy(mgr).For(&corev1.Service{}). // want Adopted
										Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.mapped)). // want Watches
										Complete(r)
}

func stock(mgr ctrl.Manager, r *reconciler) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}). // want DutyController
									Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.mapped)). // want Watches
									Complete(r)
}

func (r *reconciler) Reconcile(context.Context, ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}

func (r *reconciler) mapped(ctx context.Context, cm client.Object) []reconcile.Request {
	_ = r.List(ctx, &corev1.ServiceList{}, client.MatchingFields{"spec.of": cm.GetName()}) // want ListInHandler
	return nil
}
