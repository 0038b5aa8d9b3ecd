// Command manager is adopted by hand but for its controllers.
package main

import (
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/cli/adopt/testdata/forms/programs/shared"
)

func main() {
	cfg := ctrl.GetConfigOrDie()
	r, err := rota.New(cfg, rota.Options{Name: "programs"})
	if err != nil {
		panic(err)
	}
	mgr, err := ctrlrt.NewManager(cfg, r, ctrl.Options{})
	if err != nil {
		panic(err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(reconcile.Func(nil)); err != nil {
		panic(err)
	}
	if err := shared.Setup(mgr); err != nil {
		panic(err)
	}
	if err := setup(mgr); err != nil {
		panic(err)
	}
	_ = mgr.Start(ctrl.SetupSignalHandler())
}

func setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(reconcile.Func(nil))
}
