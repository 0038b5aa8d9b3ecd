package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/internal/cli/orders"
	cliview "github.com/rota-dev/rota/internal/cli/view"
	"github.com/rota-dev/rota/internal/protocol/table"
	"github.com/rota-dev/rota/internal/store"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

// Canary are the options of Canaries. Zero is the default.
type Canary struct {
	// Steps and Every are the canaries' orders. Default 5, 20, 50 and 100 %, and 20 s.
	Steps []int
	Every time.Duration
	// Fails is for how many objects of a thousand the reconciles of the first build fail. Default 20.
	Fails int
	// BadOnly leaves out the good build, which takes longest.
	BadOnly bool
}

const (
	// met is the part of the objects, in percent, that a bad canary may meet before it goes back.
	met = 10
	// canaryLimit is how long a canary may take.
	canaryLimit = 15 * time.Minute
)

// trial is a canary of a build.
type trial struct {
	build, about string
	// fails and slow are for the replicas' configuration. A bad build should go back.
	fails, slow int
	bad         bool

	fresh, old []*rig.Replica
	began      time.Duration
	step       int // from 1
	state      table.CanaryState
	verdict    string
	killed     []string
	killedIn   int // the last step
}

// Canaries is a story of canaries: of a build whose reconciles fail for some of the objects, of one whose reconciles
// take three times as long, and of a good one. In each step of each a replica is killed.
func Canaries(c Canary) Story {
	if len(c.Steps) == 0 {
		c.Steps = []int{5, 20, 50, 100}
	}
	if c.Every == 0 {
		c.Every = 20 * time.Second
	}
	if c.Fails == 0 {
		c.Fails = 20
	}
	trials := []*trial{
		{build: "v2", about: fmt.Sprintf("its reconciles fail for %.1f %% of the objects", float64(c.Fails)/10),
			fails: c.Fails, bad: true},
		{build: "v3", about: "its reconciles take three times as long", slow: 3, bad: true},
		{build: "v4", about: "a good one"},
	}
	if c.BadOnly {
		trials = trials[:2]
	}
	return func(ctx context.Context, s *Show) error {
		s.Unaimed = true // changes of another sort than elsewhere take longer with any build
		if err := s.SetUp(ctx); err != nil {
			return err
		}
		for _, t := range trials {
			try := func(ctx context.Context, _ *judge.Phase) error { return s.try(ctx, &c, t) }
			if err := s.Phase(ctx, rig.Step{Name: t.build, Do: try}); err != nil {
				return err
			}
		}
		return nil
	}
}

// try starts a canary and its replicas, follows it to its end, and ends the replicas that are not needed any more.
func (s *Show) try(ctx context.Context, c *Canary, t *trial) error {
	s.Log("a canary of build %s: %s", t.build, t.about)
	t.old = s.Fleet.Live()
	if err := s.order(ctx, c, t.build); err != nil {
		return err
	}
	for range 2 {
		if err := s.startFresh(ctx, t); err != nil {
			return err
		}
	}
	if err := s.followCanary(ctx, t); err != nil {
		return err
	}
	if err := s.judgeTrial(t); err != nil {
		return err
	}
	gone := t.fresh
	if t.state == table.CanaryPromoted {
		gone = t.old
		for len(running(t.fresh)) < len(running(t.old)) { // as many as there were
			if err := s.startFresh(ctx, t); err != nil {
				return err
			}
		}
	}
	for _, p := range running(gone) {
		if err := errors.Join(p.Leave(), s.Until(ctx, p.Lingers)); err != nil {
			return err
		}
	}
	return nil
}

// order starts a canary, as the command rota does.
func (s *Show) order(ctx context.Context, c *Canary, build string) error {
	kube, err := store.NewKubernetes(s.Cluster.Config, store.Options{
		Namespace: Namespace, Name: Name, Instance: "rota-demo",
	})
	if err != nil {
		return err
	}
	defer kube.Close()
	reader, err := cliview.NewReader(s.Cluster.Config, Namespace, Name)
	if err != nil {
		return err
	}
	defer reader.Close()
	by := orders.By{At: time.Now(), User: "the demo"}
	_, _, err = orders.Give(ctx, kube, reader.Epochs, func(t *table.Table) error {
		return orders.StartCanary(t, orders.Canary{Build: build, Steps: c.Steps, Every: c.Every, Expect: true}, by)
	})
	return err
}

func (s *Show) startFresh(ctx context.Context, t *trial) error {
	p, err := s.Fleet.Start(ctx, nil, func(o *rig.Operator) { o.Build, o.Fails, o.Slow = t.build, t.fails, t.slow })
	if err == nil {
		t.fresh = append(t.fresh, p)
	}
	return err
}

// followCanary waits until a canary is over. In each step it kills a replica, one of the canary's and one of the others
// in turn, and starts another one in its place.
func (s *Show) followCanary(ctx context.Context, t *trial) error {
	ctx, cancel := context.WithTimeoutCause(ctx, canaryLimit, fmt.Errorf("no end of the canary of build %s after %v",
		t.build, canaryLimit))
	defer cancel()
	for {
		now := s.Table()
		if now != nil && now.Canary.Build == t.build {
			c := &now.Canary
			t.step, t.state, t.verdict = c.Step+1, c.State, c.Verdict
			switch {
			case c.State != table.CanaryRuns:
				return nil
			case c.Began != 0 && t.began == 0:
				t.began = journal.Now()
			}
			if c.Began != 0 && t.killedIn < t.step && settledCanary(now) {
				if err := s.killInStep(ctx, t); err != nil {
					return err
				}
			}
		}
		if err := await.Sleep(ctx, 50*time.Millisecond); err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// settledCanary is true if the canary's members own its slots, and nothing moves.
func settledCanary(t *table.Table) bool {
	set := t.CanarySlots()
	for _, r := range t.Runs {
		owner, _ := t.Member(r.Owner)
		if r.Next != "" || r.Unsettled || t.Apart(owner) != set.Has(r.Slots.First) && !t.IsDuty(r.Slots.First) {
			return false
		}
	}
	return true
}

// killInStep kills a replica in a canary's step, and starts another one in its place.
func (s *Show) killInStep(ctx context.Context, t *trial) error {
	victim := running(t.fresh)[0]
	if t.step%2 == 0 {
		victim = running(t.old)[0]
	}
	s.Log("step %d: %s, of build %s, is killed", t.step, victim.Pod, victim.Operator.Build)
	t.killed, t.killedIn = append(t.killed, victim.Pod+" of "+victim.Operator.Build), t.step
	if err := s.Kill(victim, fmt.Sprintf("step %d of %s", t.step, t.build)); err != nil {
		return err
	}
	err := s.Until(ctx, func() string {
		if s.Absent(victim.Pod) == "" {
			return victim.Pod + " is still a member"
		}
		return ""
	})
	if err != nil {
		return err
	}
	if victim.Operator.Build == t.build {
		return s.startFresh(ctx, t)
	}
	p, err := s.Fleet.Start(ctx, nil, func(o *rig.Operator) { o.Build = victim.Operator.Build })
	t.old = append(t.old, p)
	return err
}

// judgeTrial adds a verdict: a good canary is promoted, and a bad one goes back before many objects met it.
func (s *Show) judgeTrial(t *trial) error {
	now := journal.Now()
	metIt, err := meetings(t.fresh, t.began, now)
	if err != nil {
		return err
	}
	websites, err := meetings(s.Fleet.All(), t.began, now)
	if err != nil {
		return err
	}
	part := 100 * float64(metIt) / float64(max(websites, len(s.Load.Sites())))
	text := fmt.Sprintf("build %s (%s): %s in step %d, after %.0f s", t.build, t.about, t.state, t.step,
		(now - t.began).Seconds())
	good := t.state == table.CanaryPromoted
	if t.bad {
		text += fmt.Sprintf("; %.1f %% of the Websites met it, of at most %d %%", part, met)
		good = t.state == table.CanaryBack && part < met
	}
	s.Log("%s. %s; killed meanwhile: %s", text, t.verdict, strings.Join(t.killed, ", "))
	s.claims = append(s.claims, judge.ClaimOf(good, text, text))
	return nil
}

// meetings counts the Websites that replicas reconciled in a time.
func meetings(all []*rig.Replica, from, until time.Duration) (int, error) {
	seen := map[string]bool{}
	for _, p := range all {
		list, err := p.Reconciles()
		if err != nil {
			return 0, err
		}
		for _, r := range list {
			if r.UID != "" && r.Start >= from && r.Start <= until {
				seen[r.UID] = true
			}
		}
	}
	return len(seen), nil
}

// running returns the replicas that run and were not asked to stop.
func running(all []*rig.Replica) []*rig.Replica {
	return slices.DeleteFunc(slices.Clone(all), func(p *rig.Replica) bool { return !p.Live() })
}
