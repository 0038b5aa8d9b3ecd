// Package late builds controllers before its manager starts, and after that.
package late

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func run(ctx context.Context) error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{}) // want `^Manager\+:` `^NoProbes:` `^NoLeaderElection:`
	if err != nil {
		return err
	}
	if err := build(mgr); err != nil {
		return err
	}
	_ = mgr.Add(everywhere{func(context.Context) error { return build(mgr) }})             // want `^LateControllers:`
	_ = mgr.Add(&starter{mgr})                                                             // want `^LateControllers:` `^Runnable:`
	_ = mgr.Add(manager.RunnableFunc(func(context.Context) error { return nil }))          // want `^Runnable:`
	_ = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return run(ctx) })) // want `^Runnable:`
	go func() {                                                                            // want `^LateControllers:`
		_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.Func(nothing)) // want `^ShardedController\+:`
	}()
	return mgr.Start(ctx)
}

func build(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(reconcile.Func(nothing)) // want `^ShardedController\+:`
}

type everywhere struct{ manager.RunnableFunc }

func (everywhere) NeedLeaderElection() bool { return false }

type starter struct{ mgr ctrl.Manager }

func (s *starter) Start(context.Context) error { return build(s.mgr) }

func program(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- run(ctx) }() // makes the manager, too
	return <-done
}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
