// Package formats has a message with a format of its own, and a variable for another error of that name.
package formats

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
)

func run(attempt int) (mgr ctrl.Manager, err error) {
	mgr, err = ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})
	if err != nil {
		return nil, fmt.Errorf("err in attempt %d: %w", attempt, err)
	}
	return mgr, nil
}
