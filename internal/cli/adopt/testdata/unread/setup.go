// Package unread makes managers with options that are not in the call.
package unread

import (
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rota-dev/rota"
	"github.com/rota-dev/rota/ctrlrt"
)

func setup(cfg *rest.Config) error {
	options := ctrl.Options{LeaderElection: true, LeaderElectionID: "unread"}
	if _, err := ctrl.NewManager(cfg, options); err != nil { // want `^Manager:` `^ManagerOption:` `^SeveralManagers:`
		return err
	}
	alone, err := rota.New(cfg, rota.Options{Name: "alone"})
	if err != nil {
		return err
	}
	if _, err := ctrlrt.NewManager(cfg, alone, options); err != nil { // want `^LeaderElection:` `^Adopted:` `^ManagerOption:` `^SeveralManagers:`
		return err
	}
	waits, err := rota.New(cfg, rota.Options{Name: "waits", LeaderElectionID: options.LeaderElectionID})
	if err != nil {
		return err
	}
	_, err = ctrlrt.NewManager(cfg, waits, options) // want `^Adopted:` `^ManagerOption:` `^SeveralManagers:`
	return err
}
