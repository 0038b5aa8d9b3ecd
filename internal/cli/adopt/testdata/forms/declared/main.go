// Package declared declares its options without a value, and gives them one in a branch.
package declared

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run(standalone bool) error {
	var opts ctrl.Options
	if standalone {
		opts = ctrl.Options{HealthProbeBindAddress: ":8081"}
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), opts)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
