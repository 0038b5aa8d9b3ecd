package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	replicas = 3
	// canaryRate is how many updates per second aim at slots on the way, so that short windows hold many; crashRate is
	// the same while a dead replica's slots wait for its lease. Neither is more than the load.
	canaryRate, crashRate = 20, 15
	// firstObjects is how many Websites are created to see how fast the machine brings them up.
	firstObjects = 300
	// fillTime is about how long it may take to bring up all of them.
	fillTime = 25 * time.Second
	// mostObjects and mostRate are what any machine gets, leastRate what any machine has to bear.
	mostObjects, mostRate, leastRate = 2000, 50, 2
	// share is the part of what the machine bears that the load takes. A load that saturates it would show the length of
	// its queues, and nothing about Rota.
	share = 3
)

// Main is the demo's own story: a replica joins, one leaves, one is killed, and all are replaced in a rolling restart.
// Unless release is "", there is an update to the replicas of that program rota-demo, and one back.
func Main(release string) Story {
	return func(ctx context.Context, s *Show) error {
		if err := s.SetUp(ctx); err != nil {
			return err
		}
		type step struct {
			name string
			do   func(context.Context, *judge.Phase) error
		}
		steps := []step{
			{"join", s.join}, {"leave", s.leaves}, {"crash", s.crash}, {"", s.join}, {"rollout", s.update(Update{Build: "v2"})},
		}
		if release != "" {
			other := Update{Build: "other", Command: []string{release, OperatorArgument}, MayEnd: true}
			steps = append(steps, step{"release", s.update(other)}, step{"return", s.update(Update{Build: "v3"})})
		}
		for _, step := range steps {
			if err := s.phase(ctx, step.name, step.do); err != nil {
				return err
			}
		}
		return nil
	}
}

// SetUp starts the replicas and the load, and measures how that is undisturbed.
func (s *Show) SetUp(ctx context.Context) error {
	s.view.log("Starting %d replicas, and creating Websites. The first start of a rota takes one lease.", replicas)
	for range replicas {
		if _, err := s.fleet.Start(ctx, nil, nil); err != nil {
			return err
		}
	}
	if err := s.fill(ctx); err != nil {
		return err
	}
	if err := s.Quiet(ctx); err != nil {
		return fmt.Errorf("the first replicas do not share the slots: %w", err)
	}
	return s.undisturbed(ctx)
}

// fill creates the Websites, waits until they are reconciled, and chooses how many there are, and how large the load
// is, where that is left to the demo.
func (s *Show) fill(ctx context.Context) error {
	create := func(n int) (perSecond float64, err error) {
		if err := s.load.Fill(ctx, n); err != nil {
			return 0, err
		}
		err = until(ctx, stepLimit+4*max(s.o.LeaseDuration, 15*time.Second), func() string {
			if n, err := s.work(); n == 0 || err != nil {
				return fmt.Sprintf("no Website is reconciled (%v)", err)
			}
			return ""
		})
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		err = s.reconciled(ctx, stepLimit, 0)
		return float64(n) / max(time.Since(begun).Seconds(), 0.1), err
	}
	objects := s.o.Objects
	if objects == 0 {
		s.o.Objects = firstObjects
	}
	bears, err := create(s.o.Objects)
	if err != nil {
		return err
	}
	if s.o.Rate == 0 {
		s.o.Rate = float64(min(max(int(bears/share), leastRate), mostRate))
	}
	if objects == 0 {
		s.o.Objects = min(max(int(bears*fillTime.Seconds())/100*100, firstObjects), mostObjects)
		if _, err := create(s.o.Objects - firstObjects); err != nil {
			return err
		}
	}
	s.view.log("All %d Websites are reconciled; the machine brings up %.0f per second. From here on %v of them are "+
		"changed, deleted or recreated per second.", s.o.Objects, bears, s.o.Rate)
	return nil
}

// undisturbed starts the load, and measures how long changes wait while nothing else happens.
func (s *Show) undisturbed(ctx context.Context) error {
	s.view.log("undisturbed, for comparison")
	s.load.Run(ctx, s.o.Rate)
	if err := await.Sleep(ctx, 2*time.Second); err != nil { // until the load has its pace
		return err
	}
	s.baseline.Begin()
	err := await.Sleep(ctx, s.o.Baseline)
	s.baseline.Finish()
	return err
}

// phase does something, waits until all is quiet, and records it. Without a name it is not in the report.
func (s *Show) phase(ctx context.Context, name string, do func(context.Context, *judge.Phase) error) error {
	err := s.timed(name, func(p *judge.Phase) error {
		if err := do(ctx, p); err != nil {
			return err
		}
		return s.Quiet(ctx)
	})
	if err != nil {
		return err
	}
	s.load.More(canaryRate)
	// Work that this phase leaves must not count as stalls of the next one. Some of the load is always under way.
	err = s.reconciled(ctx, stepLimit, 5+int(s.o.Rate))
	if err != nil && ctx.Err() == nil {
		s.view.log("The replicas do not catch up with the load; this machine is too busy for it: %v", err)
	}
	return ctx.Err()
}

// timed is a phase that ends when do returns.
func (s *Show) timed(name string, do func(*judge.Phase) error) error {
	p := &judge.Phase{Name: name, Sites: s.load.Sites()}
	p.Begin()
	if err := do(p); err != nil {
		return fmt.Errorf("phase %s: %w", name, err)
	}
	p.Finish()
	if name == "" {
		return nil
	}
	s.view.log("%-8s %.1f s", p.Name, (p.End - p.Start).Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases = append(s.phases, p)
	return nil
}

func (s *Show) join(ctx context.Context, _ *judge.Phase) error {
	p, err := s.fleet.Start(ctx, nil, nil)
	if err == nil {
		s.view.log("a replica joins: %s", p.Pod)
	}
	return err
}

func (s *Show) leaves(context.Context, *judge.Phase) error {
	p := s.fleet.Live()[0]
	s.view.log("a replica leaves (SIGTERM): %s", p.Pod)
	return p.Leave()
}

// crash kills the second oldest: the oldest may be the one that others have watched longest.
func (s *Show) crash(_ context.Context, in *judge.Phase) error {
	p := s.fleet.Live()[1]
	s.view.log("a replica is killed (SIGKILL): %s", p.Pod)
	return s.kill(p, in)
}
