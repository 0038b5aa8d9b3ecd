// Package other has a reconciler of which other packages know the interface.
package other

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// New returns it.
func New(c client.Client) (r reconcile.Reconciler) {
	r = &services{Client: c, names: &names{of: map[string]bool{}}}
	return
}

type services struct {
	client.Client
	*names
}

type names struct{ of map[string]bool }

func (n *names) note(name string) { n.of[name] = true } // want `^Memory:`

func (r *services) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.note(req.Name)
	go func() {}()                                           // want `^Goroutine:`
	return ctrl.Result{}, r.List(ctx, &corev1.ServiceList{}) // want `^ListOfShare:`
}
