// Package pointer has its options behind a pointer, which a helper gets.
package pointer

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run() error {
	opts := &ctrl.Options{HealthProbeBindAddress: ":8081"}
	fill(opts)
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), *opts)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func fill(o *ctrl.Options) { o.LeaderElection, o.LeaderElectionID = true, "pointer.example.com" }
