// Package removes does more with an error than to say it.
package removes

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func run() error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		os.Remove("/tmp/lock")
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
