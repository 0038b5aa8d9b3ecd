// Package lines says that its lines are those of other files.
package lines

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

//line main.go.in:100
func run() error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
