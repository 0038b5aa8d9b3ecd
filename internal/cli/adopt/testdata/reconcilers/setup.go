// Package reconcilers gives builders their reconcilers in many ways.
package reconcilers

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/internal/cli/adopt/testdata/reconcilers/other"
)

func setup(mgr ctrl.Manager, given reconcile.Reconciler, list []reconcile.Reconciler) {
	c := mgr.GetClient()
	// A constructor of another package that returns the interface.
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(other.New(c)) // want `^DutyController:`

	// A closure: what is in it is the controller's, not what setup does.
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func( // want `^DutyController:`
		func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
			return ctrl.Result{}, c.List(ctx, &corev1.ConfigMapList{}) // want `^ListOfShare:`
		}))
	harmless := func(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
		return ctrl.Result{}, c.List(ctx, &corev1.NodeList{})
	}
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(reconcile.Func(harmless)) // want `^ShardedController:`

	// A variable of the interface, an adapter, and a method.
	var r reconcile.Reconciler = &plain{Client: c}
	if given == nil {
		r = reconcile.AsReconciler(c, &pods{Client: c})
	}
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(r)                                                    // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&appsv1.Deployment{}).Complete(reconcile.Func((&plain{Client: c}).Reconcile)) // want `^ShardedController:`

	// It has parts, behind an interface of the operator and in a field.
	_ = ctrl.NewControllerManagedBy(mgr).For(&policyv1.PodDisruptionBudget{}).Complete(&whole{parts: []part{&budgets{c}}})  // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Endpoints{}).Complete(&byField{list: func(ctx context.Context) error { // want `^DutyController:`
		return c.List(ctx, &corev1.EndpointsList{}) // want `^ListOfShare:`
	}})

	// It is nil, an adapter gets nil, and a function that is no reconciler goes with those that are not in the source.
	_ = ctrl.NewControllerManagedBy(mgr).For(&appsv1.StatefulSet{}).Complete(nil)                                             // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&appsv1.DaemonSet{}).Complete(reconcile.AsReconciler[*appsv1.DaemonSet](c, nil)) // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.ServiceAccount{}).Complete(slices.MinFunc(list,                          // want `^DutyController:`
		func(a, b reconcile.Reconciler) int { return 0 }))

	// It is not completed.
	_ = ctrl.NewControllerManagedBy(mgr).For(&appsv1.ReplicaSet{}) // want `^DutyController:`

	// It comes from nowhere, at least in part.
	_ = ctrl.NewControllerManagedBy(mgr).For(&batchv1.Job{}).Complete(given)           // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&batchv1.CronJob{}).Complete(pick(given)) // want `^DutyController:`
}

func pick(given reconcile.Reconciler) reconcile.Reconciler {
	if given != nil {
		return given
	}
	return &plain{}
}

type plain struct{ client.Client }

func (r *plain) Reconcile(context.Context, ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}

type pods struct{ client.Client }

func (r *pods) Reconcile(ctx context.Context, _ *corev1.Pod) (ctrl.Result, error) {
	return ctrl.Result{}, r.List(ctx, &corev1.PodList{}) // want `^ListOfShare:`
}

type part interface {
	Reconcile(ctx context.Context, name string) error
	Name() string
}

// unrelated is no part.
type unrelated struct{}

func (unrelated) Reconcile(context.Context, string) error {
	go func() {}()
	return nil
}

type whole struct{ parts []part }

func (r *whole) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	for _, p := range r.parts {
		if err := p.Reconcile(ctx, req.Name); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

type budgets struct{ client.Client }

func (b *budgets) Name() string { return "" }

func (b *budgets) Reconcile(ctx context.Context, _ string) error {
	return b.List(ctx, &policyv1.PodDisruptionBudgetList{}) // want `^ListOfShare:`
}

type byField struct{ list func(context.Context) error }

func (r *byField) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, r.list(ctx)
}
