// Package handlers has map functions and predicates that list.
package handlers

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func setup(mgr ctrl.Manager) {
	r := &reconciler{mgr.GetClient()}
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}). // want `^ShardedController:`
									Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.mapped)). // want `^Watches:`
									Complete(r)
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}). // want `^ShardedController:`
									Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc( // want `^Watches:`
			func(ctx context.Context, s client.Object) []reconcile.Request {
				_ = r.List(ctx, &corev1.PodList{}, client.MatchingFields{"spec.of": s.GetName()})
				return nil
			})).
		Complete(reconcile.Func(nothing))
	// A list with another context is nobody's.
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Endpoints{}). // want `^ShardedController:`
									Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.detached)). // want `^Watches:`
									Complete(reconcile.Func(nothing))
	// A predicate has no context of the controller's.
	_ = ctrl.NewControllerManagedBy(mgr). // want `^DutyController:`
						For(&batchv1.Job{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(client.Object) bool {
			return r.List(context.Background(), &batchv1.JobList{}, client.MatchingFields{"spec.of": "x"}) == nil
		}))).
		Complete(reconcile.Func(nothing))
	// What a duty is for is not sharded, so others may list it.
	_ = ctrl.NewControllerManagedBy(mgr).For(&appsv1.Deployment{}). // want `^DutyController:`
									Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc((&duty{r}).other)). // want `^Watches:`
									Complete(&duty{mgr.GetClient()})
}

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(context.Context, ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}

func (r *reconciler) mapped(ctx context.Context, cm client.Object) []reconcile.Request {
	_ = r.List(ctx, &corev1.ServiceList{}, client.MatchingFields{"spec.of": cm.GetName()})
	return nil
}

// detached lists whole, since its context does not say who asks.
func (r *reconciler) detached(context.Context, client.Object) []reconcile.Request {
	ctx, cancel := context.WithCancel(context.TODO())
	defer cancel()
	_ = r.List(ctx, &corev1.EndpointsList{}) // want `^ListOfOthers:`
	return nil
}

type duty struct{ client.Client }

func (r *duty) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.List(ctx, &appsv1.DeploymentList{}) // want `^ListOfShare:`
}

// other maps to deployments, and lists what another controller has a share of.
func (r *duty) other(ctx context.Context, _ client.Object) []reconcile.Request {
	_ = r.List(ctx, &corev1.ServiceList{}, client.MatchingFields{"spec.of": "x"}) // want `^ListByIndex:`
	return nil
}

// admit is outside of controllers.
func admit(ctx context.Context, c client.Client) error {
	if err := c.List(ctx, &appsv1.DeploymentList{}, client.MatchingFields{"spec.of": "x"}); err != nil {
		return err
	}
	return c.List(ctx, &corev1.PodList{}, client.MatchingFields{"spec.of": "x"}) // want `^ListByIndex:`
}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
