package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/slot"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	dispatchers = 3
	workersInGo = 4
	workers     = 6
	// trial is how many Websites are created in order to see how fast the machine brings them up; fillTime is about how
	// long it may take to bring up all of them.
	trial, mostObjects = 200, 600
	fillTime           = 10 * time.Second
	mostRate           = 50
	// share is the part of what the machine bears that the load takes.
	share = 3
	// baseline is how long everything works undisturbed.
	baseline = 5 * time.Second
	// quietFor is how long the table must not change for a phase to be over.
	quietFor = time.Second
	// stepLimit bounds every wait but those for a lease.
	stepLimit = time.Minute
	// surveyPeriod is the time between two looks at all objects.
	surveyPeriod = 250 * time.Millisecond
)

// story is what happens, in order.
func (e *engine) story(ctx context.Context) error {
	e.log("Starting %d dispatchers and %d workers, and creating Websites. The first start of a rota takes one lease.",
		dispatchers, workers)
	for range dispatchers {
		if _, err := e.startDispatcher(); err != nil {
			return err
		}
	}
	for n := range workers {
		if err := e.startWorker(n >= workersInGo && e.o.Python != ""); err != nil {
			return err
		}
	}
	if err := e.fill(ctx); err != nil {
		return err
	}
	if err := e.quiet(ctx); err != nil {
		return fmt.Errorf("the first dispatchers do not share the slots: %w", err)
	}
	e.log("All %d Websites are reconciled. From here on %v of them are changed, deleted or recreated per second.",
		e.o.Objects, e.o.Rate)
	e.load.Run(ctx, e.o.Rate)
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"undisturbed", func(ctx context.Context) error { return await.Sleep(ctx, baseline) }},
		{"join", e.join},
		{"leave", e.leave},
		{"crash", e.kill},
		{"", e.replace},
		{"rollout", e.rollout},
		{"worker killed", e.loseWorker(false, false)},
		{"worker stopped", e.loseWorker(false, true)},
	}
	if e.o.Python != "" {
		steps = append(steps, []struct {
			name string
			do   func(context.Context) error
		}{
			{"worker in Python killed", e.loseWorker(true, false)}, {"worker in Python stopped", e.loseWorker(true, true)},
		}...)
	}
	for _, s := range steps {
		p := &phase{name: s.name, start: journal.Now()}
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := e.quiet(ctx); err != nil {
			return fmt.Errorf("%s: it does not come to rest: %w", s.name, err)
		}
		if p.end = journal.Now(); s.name != "" {
			e.phases = append(e.phases, p)
		}
	}
	return nil
}

// fill creates the Websites, waits until they are reconciled, and chooses how many there are, and how large the load
// is, where that is left to the demo.
func (e *engine) fill(ctx context.Context) error {
	create := func(n int) (perSecond float64, err error) {
		if err := e.load.Fill(ctx, n); err != nil {
			return 0, err
		}
		// No worker has a key before the first lease has passed.
		err = await.Until(ctx, 20*time.Millisecond, stepLimit+4*e.o.LeaseDuration, func() string {
			if all, err := e.takes(); len(all) == 0 || err != nil {
				return fmt.Sprintf("no Website is reconciled (%v)", err)
			}
			return ""
		})
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		err = e.reconciled(ctx, stepLimit)
		return float64(n) / max(time.Since(begun).Seconds(), 0.1), err
	}
	objects := cmp.Or(e.o.Objects, trial)
	bears, err := create(objects)
	if err != nil {
		return err
	}
	if e.o.Rate == 0 {
		e.o.Rate = float64(min(max(int(bears/share), 2), mostRate))
		e.log("This machine brings up %.0f Websites per second. The load takes a third of that, at most %d.", bears, mostRate)
	}
	if e.o.Objects == 0 {
		e.o.Objects = min(max(int(bears*fillTime.Seconds())/100*100, trial), mostObjects)
		_, err = create(e.o.Objects - objects)
	}
	return err
}

func (e *engine) reconciled(ctx context.Context, limit time.Duration) error {
	err := await.Until(ctx, surveyPeriod, limit, func() string {
		total, behind, example, err := e.survey(ctx)
		switch {
		case err != nil:
			return err.Error()
		case behind > 0:
			return fmt.Sprintf("%d of %d Websites, such as %s", behind, total, example)
		}
		return ""
	})
	if err != nil {
		return fmt.Errorf("the Websites are not all reconciled: %w", err)
	}
	return nil
}

// survey counts the Websites, and those whose status does not show their latest generation or whose page is another.
func (e *engine) survey(ctx context.Context) (total, behind int, example string, err error) {
	sites, err := e.cluster.Websites(ctx)
	for i := range sites {
		if s := &sites[i]; s.Status.ObservedGeneration != s.Generation || s.DeletionTimestamp != nil ||
			e.pages.Checksum(client.ObjectKeyFromObject(s)) != s.Status.Checksum {
			behind, example = behind+1, s.Name
		}
	}
	return len(sites), behind, example, err
}

func (e *engine) join(ctx context.Context) error {
	d, err := e.startDispatcher()
	if err != nil {
		return err
	}
	e.log("A dispatcher joins: %s", d.pod)
	return e.joined(ctx, d)
}

func (e *engine) leave(context.Context) error {
	d := e.tier()[0]
	e.log("A dispatcher leaves (SIGTERM): %s", d.pod)
	return d.End(syscall.SIGTERM)
}

// kill kills the second oldest dispatcher: the oldest may be the one that others have watched longest.
func (e *engine) kill(context.Context) error {
	d := e.tier()[1]
	e.log("A dispatcher is killed (SIGKILL): %s", d.pod)
	c := e.crashOf(d)
	if err := d.End(syscall.SIGKILL); err != nil {
		return err
	}
	e.crashes = append(e.crashes, c)
	e.dead.Store(c)
	t, _ := e.follow.Latest()
	e.aim(t)
	return nil
}

// crashOf is what a dispatcher has, now that it ends. Nobody takes slots from the dead before their lease is over.
func (e *engine) crashOf(d *dispatcher) *crash {
	c := &crash{pod: d.pod, at: journal.Now()}
	t, _ := e.follow.Latest()
	if t == nil {
		return c
	}
	c.epoch = t.Epoch
	for _, m := range t.Members {
		if m.Pod == d.pod {
			c.slots = c.slots.Union(t.Owned(m.ID).Intersect(t.Slots.All()))
		}
	}
	return c
}

// replace starts a dispatcher in the killed one's place, as a Deployment would.
func (e *engine) replace(ctx context.Context) error {
	d, err := e.startDispatcher()
	if err != nil {
		return err
	}
	e.log("In the killed one's place: %s", d.pod)
	return e.joined(ctx, d)
}

// rollout replaces the dispatchers one by one, with one more than usual meanwhile.
func (e *engine) rollout(ctx context.Context) error {
	old := e.tier()
	for i, d := range old {
		fresh, err := e.startDispatcherOf(e.other())
		if err != nil {
			return err
		}
		e.log("Rolling restart, %d of %d: %s comes, %s goes", i+1, len(old), fresh.pod, d.pod)
		if err := e.joined(ctx, fresh); err != nil {
			return err
		}
		if err := d.End(syscall.SIGTERM); err != nil {
			return err
		}
		if err := await.Until(ctx, 20*time.Millisecond, stepLimit, d.Lingers); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) joined(ctx context.Context, d *dispatcher) error {
	return await.Until(ctx, 20*time.Millisecond, stepLimit, func() string {
		t, _ := e.follow.Latest()
		for _, m := range t.Members {
			if m.Pod == d.pod {
				return ""
			}
		}
		return d.pod + " has not joined"
	})
}

const (
	// least is how many keys a worker has when it is lost.
	least = 2
	// stopLonger is for how much longer than its takes a worker is stopped.
	stopLonger = 2 * time.Second
	// bursting is how many Websites change at once, so that every worker has keys.
	bursting = 100
	// stopTime is what a stop takes.
	stopTime = 20 * time.Millisecond
)

// loseWorker kills a worker that has keys, and starts another one; or stops it for longer than its takes.
func (e *engine) loseWorker(python, stopped bool) func(context.Context) error {
	return func(ctx context.Context) error {
		for range bursting {
			e.load.Start(ctx, e.load.Of(slot.Set{}), e.load.Update)
		}
		var w *worker
		err := await.Until(ctx, time.Millisecond, stepLimit, func() string {
			for _, w = range e.team() {
				list, err := w.takes()
				if err != nil {
					return err.Error()
				}
				open := 0
				for _, t := range list {
					if t.End == 0 {
						open++
					}
				}
				if w.python == python && open >= least {
					return ""
				}
			}
			return fmt.Sprintf("no worker has %d keys", least)
		})
		if err != nil {
			return err
		}
		if !stopped {
			e.log("A worker is killed (SIGKILL): %s", w.name)
			if err := w.End(syscall.SIGKILL); err != nil {
				return err
			}
			<-w.Done()
			e.losses = append(e.losses, loss{worker: w.name, at: journal.Now()})
			if err := e.startWorker(python); err != nil {
				return err
			}
			return await.Sleep(ctx, e.o.TakeLength+stopLonger)
		}
		e.log("A worker is stopped (SIGSTOP) for %v: %s", e.o.TakeLength+stopLonger, w.name)
		if err := w.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		defer func() { _ = w.Signal(syscall.SIGCONT) }() // also if the story ends meanwhile
		if err := await.Sleep(ctx, stopTime); err != nil {
			return err
		}
		e.losses = append(e.losses, loss{worker: w.name, stopped: true, at: journal.Now()})
		return await.Sleep(ctx, e.o.TakeLength+stopLonger)
	}
}

// quiet waits until exactly the live dispatchers share the slots, and nothing moves.
func (e *engine) quiet(ctx context.Context) error {
	return await.Until(ctx, 20*time.Millisecond, stepLimit+4*e.o.LeaseDuration, func() string {
		t, since := e.follow.Latest()
		var pods []string
		for _, d := range e.tier() {
			pods = append(pods, d.pod)
		}
		if problem := judge.Quiet(t, pods); problem != "" {
			return problem
		}
		for _, p := range e.processes() {
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
