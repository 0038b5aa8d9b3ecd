package engine

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rota-dev/rota/internal/names"
	"github.com/rota-dev/rota/internal/replica"
	"github.com/rota-dev/rota/internal/store"
)

// checkElection returns an error if the leader election options contradict each other or are invalid.
func (o *Options) checkElection() error {
	switch {
	case o.LeaderElectionID != "" && o.NoStockReplicas:
		return fmt.Errorf("LeaderElectionID %q with NoStockReplicas: leave one out, since the rota would take turns with "+
			"stock replicas that do not exist", o.LeaderElectionID)
	case o.LeaderElectionID == "" && o.LeaderElectionNamespace != "":
		return fmt.Errorf("LeaderElectionNamespace %q without LeaderElectionID: set both, or none",
			o.LeaderElectionNamespace)
	case o.LeaderElectionID == "":
		return nil
	case o.Group != nil:
		return errors.New("LeaderElectionID and Group: each group of a program is a separate rota, and only one rota " +
			"can be the candidate; migrate from leader election with one rota first, and divide it afterwards")
	}
	if o.LeaderElectionNamespace == "" {
		o.LeaderElectionNamespace = o.Namespace
	}
	if reasons := validation.IsDNS1123Subdomain(o.LeaderElectionID); len(reasons) > 0 {
		return fmt.Errorf("LeaderElectionID %q: not a valid name for a Lease: %s", o.LeaderElectionID,
			strings.Join(reasons, "; "))
	}
	return nil
}

// electionLease returns the name of the leader election Lease, empty if the rota takes no part in leader election.
func (o *Options) electionLease() types.NamespacedName {
	return types.NamespacedName{Namespace: o.LeaderElectionNamespace, Name: o.LeaderElectionID}
}

// candidacy returns the rota's part in leader election, or nil if it takes none.
func (r *Engine) candidacy() *replica.Election {
	if r.opts.Solo || r.opts.LeaderElectionID == "" {
		return nil
	}
	return &replica.Election{
		Lease: r.opts.electionLease(), Holder: names.ElectionHolder + r.Name().String(),
		Store: r.store.(store.Elections), LedElsewhere: r.share.LedElsewhere, Expire: r.gate.Expire,
	}
}
