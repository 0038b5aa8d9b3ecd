// Package wrapped has its manager from a helper, in a form that is left to people.
package wrapped

import (
	ctrl "sigs.k8s.io/controller-runtime"
)

func run() error {
	return must(ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{})).Start(ctrl.SetupSignalHandler())
}

func must(m ctrl.Manager, err error) ctrl.Manager {
	if err != nil {
		panic(err)
	}
	return m
}
