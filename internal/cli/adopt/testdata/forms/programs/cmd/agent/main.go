// Command agent runs on each node, with a stock manager.
package main

import (
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/internal/cli/adopt/testdata/forms/programs/shared"
)

func main() {
	//rota:ignore Manager it runs on each node, and must not be sharded
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		panic(err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.Func(nil)); err != nil {
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
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.Node{}).Complete(reconcile.Func(nil))
}
