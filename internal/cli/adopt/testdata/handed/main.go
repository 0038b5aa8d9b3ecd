// Package handed returns its manager with the error.
package handed

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func newManager() (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return mgr, err
	}
	return mgr, nil
}
