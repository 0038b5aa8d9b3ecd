// Package builders keeps builders in variables, some of which have a type of their own.
package builders

import (
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func run(secrets bool) error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
	fits := ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{})
	fits = fits.Named("fits")
	if err := fits.Complete(reconcile.Func(nil)); err != nil {
		return err
	}
	var typed *builder.Builder
	typed = ctrl.NewControllerManagedBy(mgr).For(&corev1.Node{})
	if err := typed.Named("typed").Complete(reconcile.Func(nil)); err != nil {
		return err
	}
	var declared *builder.Builder = ctrl.NewControllerManagedBy(mgr).For(&corev1.Endpoints{})
	if err := declared.Named("declared").Complete(reconcile.Func(nil)); err != nil {
		return err
	}
	either := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{})
	if secrets {
		either = ctrl.NewControllerManagedBy(mgr).For(&corev1.Secret{})
	}
	return either.Complete(reconcile.Func(nil))
}
