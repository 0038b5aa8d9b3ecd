// Package known says of findings that they are known.
package known

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func run() error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
	//rota:ignore DutyController it is small
	//rota:ignore ShardedController it is small
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Node{}).Complete(reconcile.Func(nothing)); err != nil {
		return err
	}
	<-mgr.Elected() //rota:ignore Elected it is nil here
	//rota:ignore Elected
	<-mgr.Elected()
	//rota:ignore Election it is nil here
	<-mgr.Elected()
	return nil
}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
