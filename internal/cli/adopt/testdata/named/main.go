// Package named uses the name rota itself, so nothing is written.
package named

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func rota() error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
