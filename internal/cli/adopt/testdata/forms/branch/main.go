// Package branch has its options from a branch, so leader election is left to people.
package branch

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run(standalone bool) error {
	opts := ctrl.Options{LeaderElection: true, LeaderElectionID: "branch.example.com"}
	if standalone {
		opts = ctrl.Options{HealthProbeBindAddress: ":8081"}
	}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), opts)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
