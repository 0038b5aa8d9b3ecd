// Package result returns its error by the name of the result.
package result

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func newManager() (mgr ctrl.Manager, err error) {
	mgr, err = ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return
	}
	return mgr, nil
}
