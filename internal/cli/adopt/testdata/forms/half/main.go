// Package half makes two managers, one of which is adopted.
package half

import (
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
)

func one(r *rota.Rota) error {
	mgr, err := ctrlrt.NewManager(ctrl.GetConfigOrDie(), r, ctrl.Options{})
	if err != nil {
		return err
	}
	return setup(mgr)
}

func two() error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
	return setup(mgr)
}

func setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(reconcile.Func(nil))
}
