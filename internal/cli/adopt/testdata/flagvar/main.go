// Package flagvar has a flag write into its options.
package flagvar

import (
	"flag"

	ctrl "sigs.k8s.io/controller-runtime"
)

func run() error {
	opts := ctrl.Options{LeaderElectionID: "flagvar.example.com"}
	flag.BoolVar(&opts.LeaderElection, "leader-elect", true, "")
	flag.Parse()
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), opts)
	if err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
