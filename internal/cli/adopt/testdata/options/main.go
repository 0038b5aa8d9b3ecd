// Package options decides by functions.
package options

import (
	"context"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// leads asks the environment.
func leads(byDefault bool) bool {
	if v, ok := os.LookupEnv("LEADER"); ok {
		return v == "true"
	}
	return byDefault
}

func maybe(value bool) *bool { return ptr.To(leads(value)) }

func run() error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{ // want `^Manager\+:` `^NoProbes:`
		LeaderElection:   leads(false), // want `^LeaderElection\+:`
		LeaderElectionID: "options",
	})
	if err != nil {
		return err
	}
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}). // want `^DutyController\+:`
									WithOptions(controller.Options{NeedLeaderElection: maybe(false)}).
									Complete(reconcile.Func(nothing))
	led := controller.Options{NeedLeaderElection: ptr.To(true)}
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}). // want `^DutyController\+:`
									WithOptions(led). // want `^Workers:`
									Complete(reconcile.Func(nothing))
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}). // want `^ControllerByHand:`
									WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)}).
									Complete(reconcile.Func(nothing))
}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
