package rig

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	// shownRate is how many updates per second aim at slots on the way, so that short windows hold many.
	shownRate = 20
	// CrashRate is the same while a dead member's slots wait for its lease.
	CrashRate = 15
	// mostRate is what any machine gets, leastRate what any machine has to bear.
	mostRate, leastRate = 50, 2
	// share is the part of what the machine bears that the load takes. A load that saturates it would show the length of
	// its queues, and nothing about Rota.
	share = 3
)

// Step is a phase of a story. Without a name it is not recorded.
type Step struct {
	Name string
	Do   func(context.Context, *judge.Phase) error
}

// Steps are the phases of the usual story: a member joins, one leaves, one is killed, and all are updated.
func (s *Stage) Steps(u Update) []Step {
	return []Step{{"join", s.join}, {"leave", s.leave}, {"crash", s.crash}, {"", s.join}, {"rollout", s.Rollout(u)}}
}

// Fill creates the Websites, and waits until they are reconciled. It chooses how many there are, and how large the load
// is, where that is left to the stage.
func (s *Stage) Fill(ctx context.Context) error {
	create := func(n int) (perSecond float64, err error) {
		if err := s.Load.Fill(ctx, n); err != nil {
			return 0, err
		}
		err = until(ctx, s.leaseLimit(), func() string {
			if done, err := s.Workers.Records(); err != nil || len(done.Reconciles) == 0 {
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
	given := s.Objects > 0
	if !given {
		s.Objects = s.FirstObjects
	}
	bears, err := create(s.Objects)
	if err != nil {
		return err
	}
	if s.Rate == 0 {
		s.Rate = float64(min(max(int(bears/share), leastRate), mostRate))
	}
	if !given {
		s.Objects = min(max(int(bears*s.FillTime.Seconds())/100*100, s.FirstObjects), s.MostObjects)
		if _, err := create(s.Objects - s.FirstObjects); err != nil {
			return err
		}
	}
	s.Log("All %d Websites are reconciled; the machine brings up %.0f per second. From here on %v of them are "+
		"changed, deleted or recreated per second.", s.Objects, bears, s.Rate)
	return nil
}

// Undisturbed starts the load, and measures for a time how long changes wait while nothing else happens.
func (s *Stage) Undisturbed(ctx context.Context, d time.Duration) error {
	s.Log("undisturbed, for comparison")
	s.Load.Run(ctx, s.Rate)
	if err := await.Sleep(ctx, 2*time.Second); err != nil { // until the load has its pace
		return err
	}
	s.Baseline.Begin()
	err := await.Sleep(ctx, d)
	s.Baseline.Finish()
	return err
}

// Phase takes a step, waits until all is quiet, and records it.
func (s *Stage) Phase(ctx context.Context, step Step) error {
	err := s.Timed(step.Name, func(p *judge.Phase) error {
		if err := step.Do(ctx, p); err != nil {
			return err
		}
		return s.Quiet(ctx)
	})
	if err != nil {
		return err
	}
	s.Load.More(shownRate)
	// Work that this phase leaves must not count as stalls of the next one. Some of the load is always under way.
	err = s.reconciled(ctx, stepLimit, 5+int(s.Rate))
	if err != nil && ctx.Err() == nil {
		s.Log("The workers do not catch up with the load; this machine is too busy for it: %v", err)
	}
	return ctx.Err()
}

// Timed is a phase that ends when do returns.
func (s *Stage) Timed(name string, do func(*judge.Phase) error) error {
	p := &judge.Phase{Name: name, Sites: s.Load.Sites()}
	p.Begin()
	if err := do(p); err != nil {
		return fmt.Errorf("phase %s: %w", name, err)
	}
	p.Finish()
	if name == "" {
		return nil
	}
	s.Log("%-8s %.1f s", p.Name, (p.End - p.Start).Seconds())
	s.Phases = append(s.Phases, p)
	return nil
}

func (s *Stage) join(ctx context.Context, _ *judge.Phase) error {
	p, err := s.Fleet.Start(ctx, nil, nil)
	if err == nil {
		s.Log("a member joins: %s", p.Pod)
	}
	return err
}

func (s *Stage) leave(context.Context, *judge.Phase) error {
	p := s.Fleet.Live()[0]
	s.Log("a member leaves (SIGTERM): %s", p.Pod)
	return p.Leave()
}

// crash kills the second oldest: the oldest may be the one that others have watched longest.
func (s *Stage) crash(_ context.Context, in *judge.Phase) error {
	p := s.Fleet.Live()[1]
	s.Log("a member is killed (SIGKILL): %s", p.Pod)
	return s.kill(p, in)
}

// kill ends a member at once, and notes in the phase what it had. Half of the load goes there.
func (s *Stage) kill(p *Replica, in *judge.Phase) error {
	t := s.Table()
	in.Victim, in.Killed = p.Pod, journal.Now()
	if t != nil {
		in.KilledEpoch = t.Epoch
		for _, m := range t.Members {
			if m.Pod == p.Pod {
				in.VictimsSlots = in.VictimsSlots.Union(t.Owned(m.ID).Intersect(t.Slots.All()))
			}
		}
	}
	s.Load.More(CrashRate)
	if err := p.Kill(); err != nil {
		return err
	}
	s.dead.Store(in)
	if t != nil {
		s.aim(t)
	}
	return nil
}

// Kill kills a member beside the story's phases.
func (s *Stage) Kill(p *Replica, name string) error {
	in := &judge.Phase{Name: name}
	in.Begin()
	if err := s.kill(p, in); err != nil {
		return err
	}
	s.Kills = append(s.Kills, in)
	return nil
}

// Burst updates so many Websites at once.
func (s *Stage) Burst(ctx context.Context, n int) {
	for range n {
		s.Load.Start(ctx, s.Load.Of(slot.Set{}), s.Load.Update)
	}
}
