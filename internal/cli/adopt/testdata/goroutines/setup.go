// Package goroutines starts goroutines, and waits for some.
package goroutines

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
)

func setup(mgr ctrl.Manager) {
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(&leaves{}) // want `^DutyController:`
	_ = ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(&waits{})      // want `^ShardedController:`
}

type limiter interface{ Wait(context.Context) error }

type leaves struct{ limiter limiter }

func (r *leaves) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := r.limiter.Wait(ctx); err != nil {
		return ctrl.Result{}, err
	}
	go use(r.limiter) // want `^Goroutine:`

	other := make(chan struct{}, 1)
	other <- struct{}{}
	go work() // want `^Goroutine:`
	<-other

	done := make(chan struct{})
	go func() { // want `^Goroutine:`
		defer close(done)
		work()
	}()
	select { // goes on without it
	case <-done:
	case <-ctx.Done():
	}

	time.AfterFunc(time.Hour, work) // want `^Goroutine:`

	var group errgroup.Group
	group.Go(func() error { return nil }) // want `^Goroutine:`
	return ctrl.Result{}, nil
}

type waits struct{}

func (r *waits) Reconcile(context.Context, ctrl.Request) (ctrl.Result, error) {
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		work()
	}()
	wg.Wait()

	results := make(chan int, 2)
	for range 2 {
		go send(results)
	}
	for range 2 {
		<-results
	}

	group := new(errgroup.Group)
	group.Go(func() error { return nil })
	return ctrl.Result{}, group.Wait()
}

func work() {}

func use(limiter) {}

func send(to chan<- int) { to <- 1 }
