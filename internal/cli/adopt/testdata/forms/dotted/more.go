package dotted

import (
	corev1 "k8s.io/api/core/v1"
	. "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func more(mgr Manager) error { // the dot is still needed
	return NewControllerManagedBy(mgr).For(&corev1.Secret{}).Complete(reconcile.Func(nil))
}
