package demo

import (
	"context"

	"github.com/rota-dev/rota/internal/delivery/sharding"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/judge"
	"github.com/rota-dev/rota/test/rig/process"
)

// OperatorArgument makes the program rota-demo a replica.
const OperatorArgument = "demo-operator"

const (
	// Name is the rota's name.
	Name = "website"
	// Namespace is the rota's namespace.
	Namespace = "rota-demo"
	// SitesNamespace is the Websites' namespace.
	SitesNamespace = Namespace + "-sites"
)

// Show is one run of the demo, for stories.
type Show struct {
	*rig.Stage
	o *Options
	// migrates is true if replicas without Rota also work. The judge has no table for them.
	migrates bool
	// claims are the story's own verdicts.
	claims []judge.Claim
}

// Run runs the demo. When it returns, all processes are gone, and so is every folder unless Options.Keep is set. When
// ctx ends, it ends as soon as it can; but see ByHand.
func Run(ctx context.Context, o Options) (report *Report, err error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	if o.Command, err = process.Command(o.Command, OperatorArgument); err != nil {
		return nil, err
	}
	s := &Show{o: &o, Stage: &rig.Stage{
		StageOptions: o.StageOptions, Name: Namespace, Rota: Name, Key: o.key(), Audit: true,
		FirstObjects: firstObjects, MostObjects: mostObjects, FillTime: fillTime,
	}}
	err = s.Play(ctx, s.play, func(ctx context.Context) error {
		report, err = s.finish(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return report, nil
}

func (s *Show) play(ctx context.Context) (err error) {
	s.Fleet.Identify, err = s.Cluster.Users(ctx, Name, s.o.Delivery > sharding.Filter)
	if err != nil {
		return err
	}
	s.Fleet.Operator = rig.Operator{
		Rota: Name, Namespace: Namespace, Sites: SitesNamespace, Build: "v1", Pages: s.Pages.Dir, Slots: s.Slots,
		Delivery: s.o.Delivery, Lease: s.LeaseDuration, Renew: s.o.RenewDeadline, Retry: s.o.RetryPeriod,
		Write: s.o.WriteTimeout, Verbose: s.Verbose,
	}
	return s.o.Story(ctx, s)
}
