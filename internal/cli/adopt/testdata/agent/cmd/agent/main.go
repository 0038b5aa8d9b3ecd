// Command agent runs on each node, with a stock manager that stays.
package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func main() {
	//rota:ignore Manager it runs on each node
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		panic(err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.Func(nothing)); err != nil {
		panic(err)
	}
}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
