// Package returned hands its manager on, and its builder has the only use of an import.
package returned

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func newManager() (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{LeaderElection: true, LeaderElectionID: "x"})
	if err != nil {
		return nil, err
	}
	return mgr, builder.ControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.Func(nothing))
}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
