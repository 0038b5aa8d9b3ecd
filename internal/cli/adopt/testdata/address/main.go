// Package address passes its manager on by its address.
package address

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run(fill func(*ctrl.Manager)) error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
	fill(&mgr)
	return mgr.Start(ctrl.SetupSignalHandler())
}
