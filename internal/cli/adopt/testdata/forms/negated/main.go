// Package negated has flags that nothing else uses.
package negated

import (
	"flag"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func run() error {
	noElect, debug := flag.Bool("no-leader-election", false, ""), flag.Bool("debug", false, "")
	flag.Parse()
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		LeaderElection:   !*noElect && !(*debug),
		LeaderElectionID: "negated.example.com",
	})
	if err != nil {
		log.Log.WithName("setup").Error(err, "cannot create the manager", "err", err.Error())
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
