// Package jumped jumps over what would be declared.
package jumped

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run(skip bool) (err error) {
	var mgr ctrl.Manager
	if skip {
		goto done
	}
	mgr, err = ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return err
	}
done:
	_ = mgr
	return err
}
