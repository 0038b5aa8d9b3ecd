package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/test/rig"
)

const (
	replicas = 3
	// firstObjects, mostObjects and fillTime are for rig.Stage.
	firstObjects, mostObjects = 300, 2000
	fillTime                  = 25 * time.Second
)

// Main is the demo's own story: a replica joins, one leaves, one is killed, and all are replaced in a rolling restart.
// Unless release is "", there is an update to the replicas of that program rota-demo, and one back.
func Main(release string) Story {
	return func(ctx context.Context, s *Show) error {
		if err := s.SetUp(ctx); err != nil {
			return err
		}
		for _, step := range s.Steps(rig.Update{Build: "v2"}) {
			if err := s.Phase(ctx, step); err != nil {
				return err
			}
		}
		if release == "" {
			return nil
		}
		other := rig.Update{Build: "release", Command: []string{release, OperatorArgument}, MayEnd: true}
		if err := s.Update(ctx, other); err != nil {
			return err
		}
		return s.Update(ctx, rig.Update{Build: "return"})
	}
}

// SetUp starts the replicas and the load, and measures how that is undisturbed.
func (s *Show) SetUp(ctx context.Context) error {
	s.Log("Starting %d replicas, and creating Websites. The first start of a rota takes one lease.", replicas)
	for range replicas {
		if _, err := s.Fleet.Start(ctx, nil, nil); err != nil {
			return err
		}
	}
	if err := s.Fill(ctx); err != nil {
		return err
	}
	if err := s.Quiet(ctx); err != nil {
		return fmt.Errorf("the first replicas do not share the slots: %w", err)
	}
	return s.Undisturbed(ctx, s.o.Baseline)
}
