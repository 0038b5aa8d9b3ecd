package ctrlrt_test

import (
	"context"
	"log"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
	"github.com/rota-dev/rota/internal/gate"
)

func Example() {
	cfg := ctrl.GetConfigOrDie()
	r, err := rota.New(cfg, rota.Options{Name: "website", Namespace: "operators"}) // no I/O yet
	if err != nil {
		log.Fatal(err)
	}
	mgr, err := ctrlrt.NewManager(cfg, r, ctrl.Options{}) // its Start joins, and leaves before it stops anything
	if err != nil {
		log.Fatal(err)
	}
	reconciler := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		epoch, _ := gate.EpochFrom(ctx) // the fencing token for systems outside Kubernetes
		log.Println("reconciling", req, "with token", epoch)
		return reconcile.Result{}, nil
	})
	if err := ctrlrt.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconciler); err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}
