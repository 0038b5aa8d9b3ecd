// Package dotted imports controller-runtime by a dot in one file, which needs nothing else of it.
package dotted

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func run(setup func(manager.Manager) error) error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
	return setup(mgr)
}
