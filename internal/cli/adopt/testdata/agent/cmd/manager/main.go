// Command manager is the other one, so it is adopted.
package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func main() {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{LeaderElection: true, LeaderElectionID: "agent"})
	if err != nil {
		panic(err)
	}
	if err := setup(mgr); err != nil {
		panic(err)
	}
}

func setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(reconcile.Func(nothing))
}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
