package dispatch

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/await"
	"github.com/rota-dev/rota/test/rig"
	"github.com/rota-dev/rota/test/rig/journal"
	"github.com/rota-dev/rota/test/rig/judge"
)

const (
	dispatchers = 3
	workersInGo = 4
	workers     = 6
	// trial, mostObjects and fillTime are for rig.Stage.
	trial, mostObjects = 200, 600
	fillTime           = 10 * time.Second
	// baseline is how long everything works undisturbed.
	baseline = 5 * time.Second
	// least is how many keys a worker has when it is lost.
	least = 2
	// stopLonger is for how much longer than its takes a worker is stopped.
	stopLonger = 2 * time.Second
	// bursting is how many Websites change at once, so that every worker has keys.
	bursting = 100
	// stopTime is what a stop takes.
	stopTime = 20 * time.Millisecond
)

// story is what happens, in order.
func (e *engine) story(ctx context.Context) error {
	if err := e.configure(ctx); err != nil {
		return err
	}
	e.Load.Spare = true // dispatchers watch Websites alone
	e.Log("Starting %d dispatchers and %d workers, and creating Websites. The first start of a rota takes one lease.",
		dispatchers, workers)
	for range dispatchers {
		if _, err := e.Fleet.Start(ctx, nil, nil); err != nil {
			return err
		}
	}
	for n := range workers {
		if err := e.startWorker(ctx, n >= workersInGo && e.python != ""); err != nil {
			return err
		}
	}
	if err := e.Fill(ctx); err != nil {
		return err
	}
	if err := e.Quiet(ctx); err != nil {
		return fmt.Errorf("the first dispatchers do not share the slots: %w", err)
	}
	if err := e.Undisturbed(ctx, baseline); err != nil {
		return err
	}
	steps := append(e.Steps(rig.Update{Build: "rollout", Command: e.other()}),
		rig.Step{Name: "worker killed", Do: e.killWorker(false)}, rig.Step{Name: "worker stopped", Do: e.stopWorker(false)})
	if e.python != "" {
		steps = append(steps, rig.Step{Name: "worker in Python killed", Do: e.killWorker(true)},
			rig.Step{Name: "worker in Python stopped", Do: e.stopWorker(true)})
	}
	for _, step := range steps {
		if err := e.Phase(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// busyWorker changes many Websites, and returns a worker that has some of their keys.
func (e *engine) busyWorker(ctx context.Context, inPython bool) (w *rig.Replica, err error) {
	e.Burst(ctx, bursting)
	return w, await.Until(ctx, time.Millisecond, time.Minute, func() string {
		for _, w = range e.Workers.Live() {
			list, err := w.Reconciles()
			if err != nil {
				return err.Error()
			}
			open := slices.DeleteFunc(list, func(t journal.Reconcile) bool { return t.End > 0 })
			if slices.Contains(e.pythons, w) == inPython && len(open) >= least {
				return ""
			}
		}
		return fmt.Sprintf("no worker has %d keys", least)
	})
}

// killWorker kills a worker that has keys, and starts another one.
func (e *engine) killWorker(inPython bool) func(context.Context, *judge.Phase) error {
	return func(ctx context.Context, _ *judge.Phase) error {
		w, err := e.busyWorker(ctx, inPython)
		if err != nil {
			return err
		}
		e.Log("A worker is killed (SIGKILL): %s", w.Pod)
		if err := w.Kill(); err != nil {
			return err
		}
		<-w.Process().Done()
		e.losses = append(e.losses, loss{worker: w.Pod, at: journal.Now()})
		if err := e.startWorker(ctx, inPython); err != nil {
			return err
		}
		return await.Sleep(ctx, e.o.TakeLength+stopLonger)
	}
}

// stopWorker stops a worker that has keys for longer than its takes.
func (e *engine) stopWorker(inPython bool) func(context.Context, *judge.Phase) error {
	return func(ctx context.Context, _ *judge.Phase) error {
		w, err := e.busyWorker(ctx, inPython)
		if err != nil {
			return err
		}
		e.Log("A worker is stopped (SIGSTOP) for %v: %s", e.o.TakeLength+stopLonger, w.Pod)
		if err := w.Process().Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		defer func() { _ = w.Process().Signal(syscall.SIGCONT) }() // also if the story ends meanwhile
		if err := await.Sleep(ctx, stopTime); err != nil {
			return err
		}
		e.losses = append(e.losses, loss{worker: w.Pod, stopped: true, at: journal.Now()})
		return await.Sleep(ctx, e.o.TakeLength+stopLonger)
	}
}
