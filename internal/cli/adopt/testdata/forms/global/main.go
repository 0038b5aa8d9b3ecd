// Package global keeps its manager, and the name of the Lease comes from a call, so leader election is left to people.
package global

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

var mgr ctrl.Manager

func setup() error {
	var err error
	mgr, err = ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{LeaderElection: true, LeaderElectionID: os.Getenv("LEASE")})
	if err != nil {
		return err
	}
	return nil
}
