package rota

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rota-dev/rota/internal/engine"
)

// Shadow shows what a rota would do for an operator that runs without one, for example with leader election: which
// member would have which slots, and how many objects. It does not change what the operator does.
//
// The Shadows of all replicas form a separate rota, whose name ends with "-shadow". They join and leave, and slots
// move, as in any rota. But they do no work: there are no controllers, duties or labels, and no slot is opened. They
// list the metadata of the kinds and report how many objects each member would have (`rota status`).
//
// A Shadow is a manager.Runnable of controller-runtime that needs no leader election:
//
//	shadow, err := rota.NewShadow(mgr.GetConfig(), rota.Options{Name: "website"}, websiteKind)
//	err = mgr.Add(shadow)
type Shadow struct{ shadow *engine.Shadow }

// NewShadow checks the options and returns a Shadow of rota opts.Name for the kinds that would be sharded. It does no
// I/O; Start does. It makes new clients from cfg, and does not use cfg's rate limiter.
//
// opts are the options that the rota would have, so that one value serves both. Delivery, Label, LeaderElectionID and
// TracerProvider have no effect, since a shadow does not label objects and holds no Lease except its members' Leases.
// LeaveTimeout bounds the time from the end of Start's context until Start returns. Its default and maximum is 2 s.
// ScrubPeriod is the time between two lists of a kind on each member. By default lists take at most 1/1000 of the time.
// LabelNamespaces limits the lists to these namespaces. Group and Solo are refused.
func NewShadow(cfg *rest.Config, opts Options, kinds ...schema.GroupKind) (*Shadow, error) {
	s, err := engine.NewShadow(cfg, opts.engine(), kinds...)
	if err != nil {
		return nil, err
	}
	return &Shadow{s}, nil
}

// Start joins the rota of shadows until ctx ends. Then it leaves and returns nil, within LeaveTimeout. Requests in
// flight at that time end within seconds. Start never returns an error, which would end the operator: it logs why it
// failed, and joins again after a minute. Start may be called once.
func (s *Shadow) Start(ctx context.Context) error { return s.shadow.Start(ctx) }

// NeedLeaderElection returns false: a Shadow runs on every replica.
func (*Shadow) NeedLeaderElection() bool { return false }
