package rota

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/engine"
)

// Shadow shows what a rota would do with an operator that runs without one, such as by leader election: which member
// would have which slots, and how many objects. It changes nothing of what the operator does.
//
// Shadows of all replicas are the members of a rota of their own, whose name ends with "-shadow". They join and leave,
// and slots move, as in any rota. But there is nothing that could work: no controllers, no duties, no labels, and no
// gate ever opens. They list the metadata of the kinds and report how many objects each would have (`rota status`).
//
// A Shadow is a manager.Runnable of controller-runtime that needs no leader election:
//
//	shadow, err := rota.NewShadow(mgr.GetConfig(), rota.Options{Name: "website"}, websiteKind)
//	err = mgr.Add(shadow)
type Shadow struct{ shadow *engine.Shadow }

// NewShadow checks the options and returns a Shadow of rota opts.Name for the kinds that would be sharded. It does no
// I/O; Start does. It has clients of its own, and cfg's rate limiter is not used.
//
// Options are those that the rota would have, so that one value serves both. Delivery, Label, LeaderElectionID and
// TracerProvider have no effect: a shadow neither labels nor holds a Lease but its members' own. LeaveTimeout bounds
// everything that Start does when its context has ended; it is 2 s by default, and at most. ScrubPeriod is the time
// between two lists of a kind, on each member; by default so long that lists take at most 1/1000 of the time.
// LabelNamespaces limits the lists to these namespaces. Group and Solo are refused.
func NewShadow(cfg *rest.Config, opts Options, kinds ...schema.GroupKind) (*Shadow, error) {
	s, err := engine.NewShadow(cfg, opts.engine(), kinds...)
	if err != nil {
		return nil, err
	}
	return &Shadow{s}, nil
}

// Start joins the rota of shadows until ctx ends, leaves it and returns nil, within LeaveTimeout of ctx's end. What is
// under way then ends by itself within seconds. Start never returns an error, which would end the operator: it logs why
// it cannot go on, and joins again after a minute. Start may be called once.
func (s *Shadow) Start(ctx context.Context) error { return s.shadow.Start(ctx) }

// NeedLeaderElection says that it runs on every replica.
func (*Shadow) NeedLeaderElection() bool { return false }
