// Package several completes its options by a call with several results.
package several

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run(more func(ctrl.Options) (ctrl.Options, error)) error {
	opts := ctrl.Options{HealthProbeBindAddress: ":8081"}
	opts, err := more(opts)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), opts)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
