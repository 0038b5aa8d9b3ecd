// Package commented has a comment at its import.
package commented

import (
	"k8s.io/client-go/rest"
	// The runtime, under the name that everybody uses.
	ctrl "sigs.k8s.io/controller-runtime"
)

func run(cfg *rest.Config) error {
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{})
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
