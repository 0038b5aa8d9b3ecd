// Package assigned assigns the manager to a variable that is there.
package assigned

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run() (err error) {
	var mgr ctrl.Manager
	r := 1
	if r > 0 {
		mgr, err = ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
		if err != nil {
			return err
		}
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
