package demo

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/journal"
	"github.com/rota-dev/rota/test/judge"
)

// story is what happens, in order. The load begins things until loading ends, and ends
// them in later.
func (e *engine) story(ctx, loading, later context.Context) error {
	if err := e.setUp(ctx, loading, later); err != nil {
		return err
	}
	if e.hand != nil {
		return e.byHand(ctx)
	}
	if e.o.Story != nil {
		return e.o.Story(ctx, &Fleet{e})
	}
	type step struct {
		name string
		do   func(context.Context, *phaseRun) error
	}
	steps := []step{
		{"join", e.join}, {"leave", e.leave}, {"crash", e.crash}, {"", e.replace}, {"rollout", e.update(Update{Build: "v2"})},
	}
	if e.o.Release != "" {
		other := []string{e.o.Release, OperatorArgument}
		steps = append(steps, step{"release", e.update(Update{Build: "other", Command: other, MayEnd: true})},
			step{"return", e.update(Update{Build: "v3"})})
	}
	for _, p := range steps {
		if err := e.phase(ctx, p.name, p.do); err != nil {
			return err
		}
	}
	return nil
}

// setUp starts the replicas and the load, and measures how that is undisturbed.
func (e *engine) setUp(ctx, loading, later context.Context) error {
	e.view.title("setting up")
	e.view.log("Starting %d replicas, and creating Websites. The first start of a rota takes one lease.", replicas)
	for range replicas {
		if _, err := e.start(); err != nil {
			return err
		}
	}
	if err := e.fill(ctx); err != nil {
		return err
	}
	if err := e.quiet(ctx); err != nil {
		return fmt.Errorf("the first replicas do not share the slots: %w", err)
	}
	e.view.log("All %d Websites are reconciled. From here on %v of them are changed, deleted or recreated per second.",
		e.o.Objects, e.o.Rate)

	e.view.title("undisturbed, for comparison")
	e.aimed(canaryRate)
	e.load.run(loading, later, e.o.Rate)
	if err := await.Sleep(ctx, 2*time.Second); err != nil { // until the load has its pace
		return err
	}
	before, err := e.work()
	if err != nil {
		return err
	}
	e.baseline.begin()
	if err := await.Sleep(ctx, e.o.Baseline); err != nil {
		return err
	}
	e.baseline.finish()
	after, err := e.work()
	if err != nil {
		return err
	}
	e.pace = int(float64(after-before) * quietFor.Seconds() / e.o.Baseline.Seconds())
	return nil
}

func (e *engine) phase(ctx context.Context, name string, do func(context.Context, *phaseRun) error) error {
	p := &phaseRun{name: name, sites: e.load.Sites()}
	p.begin()
	err := do(ctx, p)
	if err == nil {
		if err = e.quiet(ctx); err != nil {
			err = fmt.Errorf("it does not come to rest: %w", err)
		}
	}
	if err != nil {
		if p.victim != "" { // what it had is excused, also if the run is judged now
			e.mu.Lock()
			e.kills = append(e.kills, p)
			e.mu.Unlock()
		}
		return fmt.Errorf("phase %s: %w", name, err)
	}
	p.finish()
	e.aimed(canaryRate)
	if name != "" {
		e.mu.Lock()
		e.phases = append(e.phases, p)
		e.mu.Unlock()
		e.view.log("%-8s %.1f s", name, (p.end - p.start).Seconds())
	}
	// Work that this phase leaves must not count as stalls of the next one.
	return e.calm(ctx)
}

// calm waits until the replicas have caught up with the load, at most stepLimit.
func (e *engine) calm(ctx context.Context) error {
	for range int(stepLimit / quietFor) {
		before, err := e.work()
		if err != nil {
			return err
		}
		if err := await.Sleep(ctx, quietFor); err != nil {
			return err
		}
		after, err := e.work()
		if err != nil {
			return err
		}
		_, behind, _, err := e.survey(ctx)
		if err != nil {
			return err
		}
		// Of the load itself some is always under way.
		if some := 5 + int(e.o.Rate); behind <= some && after-before <= e.pace+some {
			return nil
		}
	}
	e.view.log("The replicas do not catch up with the load; this machine is too busy for it.")
	return nil
}

// work returns the number of reconciles so far.
func (e *engine) work() (n int, err error) {
	for _, p := range e.all() {
		done, err := p.count()
		if err != nil {
			return 0, err
		}
		n += done
	}
	return n, nil
}

func (e *engine) join(context.Context, *phaseRun) error {
	p, err := e.start()
	if err == nil {
		e.view.title("a replica joins: " + p.pod)
	}
	return err
}

func (e *engine) leave(context.Context, *phaseRun) error {
	p := e.live()[0]
	e.view.title("a replica leaves (SIGTERM): " + p.pod)
	return p.End(syscall.SIGTERM)
}

// crash kills the second oldest: the oldest may be the one that others have watched longest.
func (e *engine) crash(_ context.Context, run *phaseRun) error {
	p := e.live()[1]
	e.view.title("a replica is killed (SIGKILL): " + p.pod)
	return e.kill(p, run)
}

// kill ends a replica at once, and notes in run what it had.
func (e *engine) kill(p *replica, run *phaseRun) error {
	aim := e.noteVictim(p, run)
	e.aimed(crashRate)
	if err := p.End(syscall.SIGKILL); err != nil {
		return err
	}
	aim()
	return nil
}

// noteVictim notes in run what a replica has, now that it ends. The function that it returns aims the load there.
func (e *engine) noteVictim(p *replica, run *phaseRun) (aim func()) {
	t, _ := e.follow.Latest()
	run.victim, run.killed = p.pod, journal.Now()
	if t == nil {
		return func() {}
	}
	for _, m := range t.Members {
		if m.Pod == p.pod {
			run.victimsSlots = run.victimsSlots.Union(t.Owned(m.ID).Intersect(t.Slots.All()))
		}
	}
	return func() {
		e.dead.Store(&deadSlots{p.pod, run.victimsSlots})
		e.aim(t)
	}
}

// replace starts a replica in the killed one's place, as a Deployment would.
func (e *engine) replace(context.Context, *phaseRun) error {
	p, err := e.start()
	if err == nil {
		e.view.title("in the killed one's place: " + p.pod)
	}
	return err
}

func (e *engine) absent(pod string) string {
	t, _ := e.follow.Latest()
	if t != nil {
		for _, m := range t.Members {
			if m.Pod == pod {
				return ""
			}
		}
	}
	return pod + " has not joined"
}

// quiet waits until exactly the live replicas share the slots, and nothing moves.
func (e *engine) quiet(ctx context.Context) error {
	limit := stepLimit + 4*max(e.o.LeaseDuration, 15*time.Second)
	return until(ctx, limit, func() string {
		t, since := e.follow.Latest()
		var pods []string
		for _, p := range e.live() {
			pods = append(pods, p.pod)
		}
		if problem := judge.Quiet(t, pods); problem != "" {
			return problem
		}
		for _, p := range e.all() {
			if problem := p.Lingers(); problem != "" && !p.Running() {
				return problem
			}
		}
		if journal.Now()-since < quietFor {
			return "the table still changes"
		}
		return ""
	})
}

// unreconciled says which Websites are not up to date, or "".
func (e *engine) unreconciled(ctx context.Context) string {
	total, behind, example, err := e.survey(ctx)
	switch {
	case err != nil:
		return err.Error()
	case behind > 0:
		return fmt.Sprintf("%d of %d Websites, such as %s", behind, total, example)
	default:
		return ""
	}
}

// survey counts the Websites, and those whose status does not show their latest generation or whose page is another.
func (e *engine) survey(ctx context.Context) (total, behind int, example string, err error) {
	sites, err := e.cluster.Websites(ctx)
	for i := range sites {
		if s := &sites[i]; s.Status.ObservedGeneration != s.Generation || s.DeletionTimestamp != nil ||
			e.load.pages.Checksum(client.ObjectKeyFromObject(s)) != s.Status.Checksum {
			behind, example = behind+1, s.Name
		}
	}
	return len(sites), behind, example, err
}
