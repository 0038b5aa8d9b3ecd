// Package variable has its options in a variable, and the name of the Lease in a constant.
package variable

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

const lease = "variable.example.com"

func run(elect bool, namespace string) error {
	options := manager.Options{
		LeaderElection:          elect,
		LeaderElectionID:        lease,
		LeaderElectionNamespace: namespace, // where the Lease is
		HealthProbeBindAddress:  ":8081",
	}
	cfg, err := config.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := manager.New(cfg, options)
	if err != nil {
		return fmt.Errorf("unable to set up overall controller manager: %w", err)
	}
	return mgr.Start(signals.SetupSignalHandler())
}
