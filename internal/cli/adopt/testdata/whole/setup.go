// Package whole has a controller of whole kinds beside a sharded one.
package whole

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
)

func run(r *rota.Rota) error {
	mgr, err := ctrlrt.NewManager(ctrl.GetConfigOrDie(), r, ctrl.Options{ // want `^Adopted:`
		HealthProbeBindAddress: ":8081",
		LeaderElection:         true, // want `^LeaderElection:`
		LeaderElectionID:       "whole",
	})
	if err != nil {
		return err
	}
	whole, err := mgr.Whole()
	if err != nil {
		return err
	}
	if err := build(whole); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(reconcile.Func(nothing)) // want `^ShardedController\+:`
}

func build(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.Func(nothing)) // want `^Adopted:`
}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
