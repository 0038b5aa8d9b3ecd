// Package later sets leader election behind the other options, so it is left to people.
package later

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run(elect bool) error {
	options := ctrl.Options{HealthProbeBindAddress: ":8081"}
	options.LeaderElection, options.LeaderElectionID = elect, "later.example.com"
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
