// Package hidden has a name in its options that means something else where the manager is made.
package hidden

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run(lease string, elect bool) error {
	opts := ctrl.Options{LeaderElection: elect, LeaderElectionID: lease}
	{
		lease := 1
		_ = lease
		mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), opts)
		if err != nil {
			return err
		}
		return mgr.Start(ctrl.SetupSignalHandler())
	}
}
