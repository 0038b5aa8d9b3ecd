package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/await"
)

// The API server, etcd, the replicas and the load share a machine. A load that saturates it would show the length of
// its queues, and nothing about Rota.
const (
	// trial is how many Websites are created in order to see how fast the machine brings them up.
	trial = 300
	// fillTime is about how long it may take to bring up all of them.
	fillTime = 25 * time.Second
	// mostObjects and mostRate are what any machine gets.
	mostObjects, mostRate = 2000, 50
	// leastRate is what any machine has to bear.
	leastRate = 2
	// share is the part of what the machine bears that the load takes.
	share = 3
)

// fill creates the Websites, waits until they are reconciled, and chooses how many there are, and how large the load
// is, where that is left to the demo.
func (e *engine) fill(ctx context.Context) error {
	if err := e.load.certify(ctx); err != nil {
		return err
	}
	first := e.o.Objects
	if first == 0 {
		first = trial
	}
	if err := e.load.Fill(ctx, first); err != nil {
		return err
	}
	if err := until(ctx, stepLimit+4*max(e.o.LeaseDuration, 15*time.Second), e.idle); err != nil {
		return err
	}
	begun := time.Now()
	if err := e.reconciled(ctx); err != nil {
		return err
	}
	e.bears = float64(first) / max(time.Since(begun).Seconds(), 0.1)
	objects := e.o.Objects
	if objects == 0 {
		e.o.Objects = min(max(int(e.bears*fillTime.Seconds())/100*100, trial), mostObjects)
	}
	if e.o.Rate == 0 {
		e.o.Rate = float64(min(max(int(e.bears/share), leastRate), mostRate))
		e.view.log("This machine brings up %.0f Websites per second. The load takes a third of that, at most %d: "+
			"%v changes per second.", e.bears, mostRate, e.o.Rate)
	}
	if objects != 0 {
		return nil
	}
	e.view.log("Creating %d more Websites, for %d in all: what it brings up in %v, at most %d.",
		e.o.Objects-first, e.o.Objects, fillTime, mostObjects)
	if err := e.load.Fill(ctx, e.o.Objects-first); err != nil {
		return err
	}
	return e.reconciled(ctx)
}

// idle says that no replica has begun to work.
func (e *engine) idle() string {
	n, err := e.work()
	switch {
	case err != nil:
		return err.Error()
	case n == 0:
		return "no Website is reconciled"
	default:
		return ""
	}
}

func (e *engine) reconciled(ctx context.Context) error {
	if err := await.Until(ctx, surveyPeriod, stepLimit, func() string { return e.unreconciled(ctx) }); err != nil {
		return fmt.Errorf("the Websites are not all reconciled: %w", err)
	}
	return nil
}

// aimed has the load send so many updates per second to slots on the way, or as many as it is large.
func (e *engine) aimed(perSecond int64) {
	e.load.canaryRate.Store(max(1, min(perSecond, int64(e.o.Rate))))
}
