// Command values makes its manager and its controllers by functions that are values.
package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rota-dev/rota/ctrlrt"
)

var (
	newManager = ctrl.NewManager               // want `^NotSeen:`
	newBuilder = ctrl.NewControllerManagedBy   // want `^NotSeen:`
	_          = ctrlrt.NewControllerManagedBy // want `^NotSeen:`
)

func main() {
	mgr, err := newManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		panic(err)
	}
	_ = newBuilder(mgr).For(&corev1.Service{}).Complete(reconcile.Func(nothing))
	with(builder.ControllerManagedBy) // want `^NotSeen:`
}

func with(func(manager.Manager) *builder.Builder) {}

func nothing(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil }
