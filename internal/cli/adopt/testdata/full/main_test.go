package main

import (
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
)

func TestSetup(t *testing.T) {
	mgr, err := ctrl.NewManager(nil, ctrl.Options{}) // want Tests
	if err != nil {
		t.Skip(err)
	}
	check(setup(mgr))
}
